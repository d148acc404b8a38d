"""Coefficients that change while a run is trained."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Schedule(NamedTuple):
    """Give a coefficient's value at a point of the run.

    shape: "constant", "linear" (from start to 0) or "adaptive" (from start; the learner changes
    it). function: gives the value instead, from the remaining share of the run.
    """

    start: Any = None
    shape: str = "constant"
    function: Callable[[float], float] | None = None

    @classmethod
    def parse(cls, setting) -> "Schedule":
        """Read a setting: a number, None, "linear:<number>", "adaptive:<number>" or a function."""
        if callable(setting):
            return cls(function=setting)
        shape, separator, start = str(setting).partition(":")
        if separator:
            return cls(float(start), shape)
        return cls(setting)

    def __call__(self, remaining: float):
        """Return the value when a share of the run remains: 1 at its start, towards 0."""
        if self.function:
            return self.function(remaining)
        if self.shape == "linear":
            return self.start * remaining
        return self.start
