"""Measure how long a run takes."""

import time


class Clock:
    """Measure the seconds of a run, and of each phase of an iteration (phases, by name).

    earlier: the seconds that the run took before it was resumed.
    """

    def __init__(self, earlier: float = 0.0) -> None:
        self.start = time.perf_counter() - earlier
        self.begin_iteration()

    @property
    def elapsed(self) -> float:
        """Seconds that the run has taken so far, including those before it was resumed."""
        return time.perf_counter() - self.start

    def begin_iteration(self) -> None:
        """Forget the phases of the last iteration, and start the first one of the next."""
        self.phases: dict[str, float] = {}
        self.phase_start = time.perf_counter()

    def end_phase(self, name: str) -> None:
        """Record the seconds of the current phase under a name, and start the next one."""
        now = time.perf_counter()
        self.phases[name] = now - self.phase_start
        self.phase_start = now
