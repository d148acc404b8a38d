"""Seconds that a run takes."""

import time


class Clock:
    """Measure the seconds of a run, and of the phases of an iteration.

    earlier: the seconds that the run took before it was resumed.
    """

    def __init__(self, earlier: float = 0.0) -> None:
        self.start = time.perf_counter() - earlier
        self.begin_iteration()

    @property
    def elapsed(self) -> float:
        """Seconds of the run until now."""
        return time.perf_counter() - self.start

    def begin_iteration(self) -> None:
        """Start the first phase of an iteration."""
        self.phases: dict[str, float] = {}
        self.phase_start = time.perf_counter()

    def end_phase(self, name: str) -> None:
        """Note the seconds of a phase, and start the next one."""
        now = time.perf_counter()
        self.phases[name] = now - self.phase_start
        self.phase_start = now
