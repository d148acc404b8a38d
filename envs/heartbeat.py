"""Heartbeats: report every call of an environment to the process that watches this one."""

from numpy import ndarray

CALLS = ("start", "reset", "step", "render", "close")


class Heartbeat:
    """Count the calls of environments in this process, if another process watches it.

    array: (3,) int64, shared with that process: number of calls so far, index in CALLS of the last
    one, and progress, such as the number of finished episodes."""

    def __init__(self) -> None:
        self.array: ndarray | None = None

    def __call__(self, call: str) -> None:
        if self.array is not None:
            self.array[0] += 1
            self.array[1] = CALLS.index(call)

    def report_progress(self, done: int) -> None:
        """Publish progress, such as the number of finished episodes."""
        if self.array is not None:
            self.array[2] = done


HEARTBEAT = Heartbeat()  # of this process


def env_of_call(call: int) -> int:
    """Decode a worker's heartbeat: return i for a step of environment i (i) or its reset (~i)."""
    return max(call, ~call)
