"""Spaces: the leaves of nested ones, conversion of actions and masks, and their form in JSON."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple, flatdim
from numpy import ndarray

from ppo.errors import BadValue

ACTION_MASK = "action_mask"  # in an info: which actions the environment allows next
Path = tuple[Any, ...]  # of keys, to a leaf of a nested space


def leaves(space: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield each leaf of a nested space, after its path."""
    if isinstance(space, (Dict, Tuple)):
        parts = space.items() if isinstance(space, Dict) else enumerate(space)
        for key, part in parts:
            yield from leaves(part, (*path, key))
    else:
        yield path, space


def holds_numbers(space: Any) -> bool:
    """Return whether a space, which is not nested, has a fixed number of numbers."""
    return isinstance(space, (Box, Discrete, MultiDiscrete, MultiBinary)) and flatdim(space) > 0


def num_choices(space: Any) -> ndarray:
    """Return the number of choices (D,) that each column of a discrete space has."""
    if isinstance(space, MultiBinary):
        return np.full(math.prod(space.shape), 2)
    return np.ravel(getattr(space, "nvec", getattr(space, "n", 0)))


def action_converter(space: Any) -> Callable[[ndarray], Any]:
    """Return a function from the policy's actions (n, D) to the actions of n environments. Those of
    a Box are clipped here only: the learner sees unclipped ones. Discrete actions are shifted by
    the space's start."""
    start = getattr(space, "start", 0)
    if isinstance(space, Discrete):
        return lambda actions: (actions.reshape(-1).astype(np.int64, copy=False) + start).tolist()
    shape = (-1, *space.shape)
    dtype = space.dtype
    if not isinstance(space, Box):
        return lambda actions: (actions.reshape(shape) + start).astype(dtype, copy=False)
    is_whole = np.issubdtype(dtype, np.integer)
    low, high = space.low, space.high
    shift, factor = box_scale(space)
    is_scaled = (factor != 1).any() or (shift != 0).any()

    def convert(actions: ndarray) -> ndarray:
        rows = actions.reshape(shape)
        if is_scaled:
            rows = shift + factor * rows
        rows = np.minimum(np.maximum(rows, low), high)
        if is_whole:
            rows = np.rint(rows)
        return rows.astype(dtype, copy=False)

    return convert


def box_scale(box: Box) -> tuple[ndarray, ndarray]:
    """Return shift and factor, of a Box's shape, from the policy's actions to the Box: -1 and 1 are
    the bounds. Unbounded numbers, or those whose range overflows, are not scaled."""
    with np.errstate(over="ignore", invalid="ignore"):
        middle = box.low / 2 + box.high / 2
        half = box.high / 2 - box.low / 2
        is_bounded = np.isfinite(2 * half)
    return np.where(is_bounded, middle, 0), np.where(is_bounded, half, 1)


def mask_converter(space: Any) -> Callable[[Any], ndarray]:
    """Return a function from an environment's action mask to the policy's, (M,) bool, which has K
    columns for each discrete choice, where K is the size of the largest. The environment's mask has
    a 0 or 1 for each action of each choice, in one array or one per choice; None allows everything.
    The function raises BadValue for other entries, or if a choice has no allowed action."""
    if isinstance(space, Box):
        return lambda allowed: np.ones(0, np.bool_)
    sizes = num_choices(space)
    exists = np.arange(sizes.max()) < sizes[:, None]

    def convert(allowed: Any) -> ndarray:
        mask = exists.copy()
        if allowed is not None:
            numbers = allowed if isinstance(allowed, ndarray) else np.hstack(allowed)
            if numbers.size != exists.sum() or not np.isin(numbers, (0, 1)).all():
                raise BadValue(f"its action_mask {allowed} must be {exists.sum()} zeros and ones")
            mask[exists] = numbers.ravel()
        if not mask.any(1).all():
            raise BadValue("its action_mask allows no action")
        return mask.ravel()

    return convert


def to_json(space: Any) -> Any:
    """Return a space as JSON values; a leaf without numbers, such as Text, as its name."""
    match space:
        case Dict():
            return {"Dict": [[key, to_json(part)] for key, part in space.items()]}
        case Tuple():
            return {"Tuple": [to_json(part) for part in space]}
        case Discrete():
            return {"Discrete": [int(space.n), int(space.start)]}
        case MultiDiscrete():
            return {"MultiDiscrete": [space.nvec.tolist(), space.start.tolist()]}
        case MultiBinary():
            return {"MultiBinary": [*space.shape]}
        case Box():
            lists = [x.ravel().tolist() for x in (space.low, space.high)]
            bounds = [x[0] if len({*x}) == 1 else x for x in lists]
            return {"Box": [*bounds, [*space.shape], str(space.dtype)]}
    return {"Space": type(space).__name__}


def from_json(content: Any) -> Any:
    """Return the space of which to_json made JSON values."""
    match content:
        case {"Dict": parts}:
            return Dict([(key, from_json(part)) for key, part in parts])
        case {"Tuple": parts}:
            return Tuple([from_json(part) for part in parts])
        case {"Discrete": [size, start]}:
            return Discrete(size, start=start)
        case {"MultiDiscrete": [sizes, starts]}:
            return MultiDiscrete(np.array(sizes), start=np.array(starts))
        case {"MultiBinary": shape}:
            return MultiBinary(shape)
        case {"Box": [low, high, shape, dtype]}:
            bounds: Any = [np.full(math.prod(shape), x, dtype).reshape(shape) for x in (low, high)]
            return Box(*bounds, dtype=np.dtype(dtype).type)
    return Space()
