"""Coefficients that change while a run is trained."""

from collections.abc import Callable
from typing import Any, overload


@overload
def scheduled(setting: float | str | Callable[..., float], remaining: float) -> float: ...


@overload
def scheduled(
    setting: float | str | Callable[..., float] | None, remaining: float
) -> float | None: ...


def scheduled(setting: Any, remaining: float) -> Any:
    """Return the value of a coefficient at some time in a run.

    remaining: the fraction of the run that is left, 1 at its start. setting: a number or None,
    returned as it is; "linear:<number>", the number times remaining; "adaptive:<number>", the one
    that the learner starts with; or a function of remaining.
    """
    if callable(setting):
        return setting(remaining)
    shape, colon, start = str(setting).partition(":")
    if not colon:
        return setting
    if shape == "linear":
        return float(start) * remaining
    return float(start)
