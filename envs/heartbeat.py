"""Signs of life: tell the process that watches this one of every call of an environment."""

from numpy import ndarray

CALLS = ("start", "reset", "step", "render", "close")


class Heartbeat:
    """Count the calls of environments in this process, if another one watches it.

    array: (3,), shared with that process: the number of calls so far, the index in CALLS of the
    last one, and how much of the work is done, such as episodes."""

    array: ndarray | None = None

    def __call__(self, call: str) -> None:
        if self.array is not None:
            self.array[0] += 1
            self.array[1] = CALLS.index(call)

    def report_progress(self, done: int) -> None:
        """Tell how much of the work is done."""
        if self.array is not None:
            self.array[2] = done


HEARTBEAT = Heartbeat()  # of this process


def called_env(call: int) -> int:
    """Return the environment of a worker's call: i for a step (i) or a reset (~i)."""
    return max(call, ~call)
