"""Between the columns of numbers that a policy deals in and the actions of an environment, however they are nested."""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

ACTION_MASK = (
    "action_mask"  # in the info of a reset or a step: which actions the environment allows next
)


def action_converter(space: Any, squash: bool = False) -> Callable[[np.ndarray], Any]:
    """From actions (n, D) of the policy to those of n environments. squash: boxes are filled by tanh; otherwise actions
    are clipped to them, only here: it is the unclipped ones that are learned from."""
    if parts := _parts(space):
        converters = [action_converter(part, squash) for part in parts.values()]
        cuts = np.cumsum([_num_columns(part) for part in parts.values()])[:-1]

        def convert(actions: np.ndarray) -> list[Any]:
            columns = np.split(actions, cuts, axis=1)
            rows = zip(
                *(own(column) for own, column in zip(converters, columns, strict=True)), strict=True
            )
            return [
                row if isinstance(space, spaces.Tuple) else dict(zip(parts, row, strict=True))
                for row in rows
            ]

        return convert
    shape, dtype = (-1, *space.shape), space.dtype
    if isinstance(space, spaces.Box):
        low, high = space.low, space.high
        middle, half = (low / 2 + high / 2, high / 2 - low / 2) if squash else (0, 1)
        is_whole = dtype.kind in "iu"

        def fit(actions: np.ndarray) -> np.ndarray:
            rows = actions.reshape(shape)
            rows = middle + half * np.tanh(rows) if squash else rows
            rows = np.minimum(np.maximum(rows, low), high)
            return (np.rint(rows) if is_whole else rows).astype(dtype, copy=False)

        return fit
    start = getattr(space, "start", 0)
    if isinstance(space, spaces.Discrete):
        return lambda actions: (actions.reshape(-1).astype(np.int64, copy=False) + start).tolist()
    return lambda actions: (actions.reshape(shape) + start).astype(dtype, copy=False)


def mask_converter(space: Any) -> Callable[[Any], np.ndarray]:
    """From what an environment allows to (M,) bool for the policy: K columns for each of its choices among up to K.
    What is allowed: a number for each choice's first action, second and so on, in one array or in one for each choice;
    of a Tuple or Dict, that of each part; None for all. It raises ValueError if numbers are too many or too few, or if
    a choice has nothing left."""
    if parts := _parts(space):
        converters = {key: mask_converter(part) for key, part in parts.items()}

        def convert_parts(allowed: Any) -> np.ndarray:
            given = (
                dict(enumerate(allowed or ()))
                if isinstance(space, spaces.Tuple)
                else dict(allowed or {})
            )
            return np.concatenate([own(given.get(key)) for key, own in converters.items()])

        return convert_parts
    if isinstance(space, spaces.Box):
        return lambda allowed: np.ones(0, np.bool_)
    count = (
        [2] * _num_columns(space)
        if isinstance(space, spaces.MultiBinary)
        else getattr(space, "n", 0)
    )
    sizes = getattr(space, "nvec", count)
    exists = np.arange(np.max(sizes)) < np.reshape(sizes, (-1, 1))

    def convert(allowed: Any) -> np.ndarray:
        mask = exists.copy()
        if allowed is not None:
            numbers = np.hstack(allowed).ravel()
            if len(numbers) != exists.sum():
                raise ValueError(
                    f"its action_mask has {len(numbers)} numbers for the {exists.sum()} of {space}"
                )
            if not ((numbers == 0) | (numbers == 1)).all():
                raise ValueError("its action_mask has numbers other than 0 and 1")
            mask[exists] = numbers
        if not mask.any(axis=1).all():
            raise ValueError("its action_mask allows no action")
        return mask.ravel()

    return convert


def can_act_in(space: Any) -> bool:
    """Whether a space of actions is one of the kinds that are converted here."""
    kinds = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    return (
        all(map(can_act_in, _parts(space).values())) if _parts(space) else isinstance(space, kinds)
    )


def _parts(space: Any) -> dict[Any, Any]:
    """What a Tuple or a Dict is made of, by index or name."""
    if isinstance(space, spaces.Tuple):
        return dict(enumerate(space))
    return dict(space.spaces) if isinstance(space, spaces.Dict) else {}


def _num_columns(space: Any) -> int:
    """How many columns the actions of a space take."""
    parts = _parts(space)
    return sum(map(_num_columns, parts.values())) if parts else int(np.prod(space.shape))
