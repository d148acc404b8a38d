"""Measure how long a run takes, and how long another process has been watched."""

import time

MAX_SECONDS_BETWEEN = 0.1  # readings of a Stopwatch


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


class Stopwatch:
    """Measure the seconds in which this process, which reads it again and again, has run.

    Between two readings, at most MAX_SECONDS_BETWEEN count: in more than that, this process did not
    run (Ctrl-Z, SIGSTOP, docker pause), and what it watches may not have run either."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin again at zero."""
        self.seconds = 0.0
        self.read_at = time.monotonic()

    def read(self) -> float:
        """Return the seconds so far."""
        now = time.monotonic()
        self.seconds += min(now - self.read_at, MAX_SECONDS_BETWEEN)
        self.read_at = now
        return self.seconds
