"""Nested spaces: their leaves, conversion of actions and masks, and their form in JSON."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple, flatdim
from numpy import ndarray

from ppo.errors import BadValue

ACTION_MASK = "action_mask"  # in an info: which actions the environment allows next
FARTHEST = 3.0  # bound that a standard normal reaches: one of 370 samples is farther from 0
LEAST_SHARE = 0.25  # of a standard normal's samples that bounds must not clip
UNLIMITED = 1e9  # larger bounds are none: MuJoCo writes 1e10, others the largest float


def parts_of(space: Space[Any]) -> dict[Any, Space[Any]]:
    """Return the parts of a Tuple or a Dict, by index or name; none of other spaces."""
    if isinstance(space, Tuple):
        return dict(enumerate(space))
    if isinstance(space, Dict):
        return dict(space.spaces)
    return {}


def leaves(space: Space[Any], path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield (path of keys, space) for each leaf of a nested space."""
    parts = parts_of(space)
    if not parts:
        yield path, space
    for key, part in parts.items():
        yield from leaves(part, (*path, key))


def holds_numbers(space: Space[Any]) -> bool:
    """Return whether every leaf of a space has a fixed number of numbers, at least one."""
    kinds = (Box, Discrete, MultiDiscrete, MultiBinary)
    return all(isinstance(leaf, kinds) and flatdim(leaf) for _, leaf in leaves(space))


def num_columns(space: Space[Any]) -> int:
    """Return the number of columns D that actions of a space have in the rollout."""
    return sum(math.prod(leaf.shape) for _, leaf in leaves(space))


def columns_dtype(space: Space[Any]) -> Any:
    """Return the dtype of a policy's actions: float32 if some of them are continuous."""
    is_continuous = any(isinstance(leaf, Box) for _, leaf in leaves(space))
    return np.float32 if is_continuous else np.int64


def choices_of(leaf: Any) -> ndarray:
    """Return the number of choices (D,) that each column of a discrete leaf has."""
    if isinstance(leaf, MultiBinary):
        return np.full(math.prod(leaf.shape), 2)
    if isinstance(leaf, MultiDiscrete):
        return np.ravel(leaf.nvec)
    return np.array([leaf.n])


def action_converter(space: Space[Any], squash: bool) -> Callable[[ndarray], Sequence[Any]]:
    """Return a function from the policy's actions (n, D) to the actions of n environments.

    squash: scale tanh(action) to a Box's bounds. Otherwise actions are clipped to them, here only,
    so that the learner sees unclipped actions. Discrete actions are shifted by the space's start.
    """
    if isinstance(space, (Tuple, Dict)):
        return _nested_converter(space, squash)
    if isinstance(space, Box):
        return _box_converter(space, squash)
    start = getattr(space, "start", 0)
    if isinstance(space, Discrete):
        return lambda actions: (actions.reshape(-1).astype(np.int64, copy=False) + start).tolist()
    assert space.shape is not None
    shape = (-1, *space.shape)
    return lambda actions: (actions.reshape(shape) + start).astype(space.dtype, copy=False)


def _nested_converter(space: Tuple | Dict, squash: bool) -> Callable[[ndarray], Sequence[Any]]:
    parts = parts_of(space)
    converters = [action_converter(part, squash) for part in parts.values()]
    cuts = np.cumsum([num_columns(part) for part in parts.values()])[:-1]

    def convert(actions: ndarray) -> Sequence[Any]:
        columns = np.split(actions, cuts, axis=1)
        converted = [own(column) for own, column in zip(converters, columns, strict=True)]
        rows = zip(*converted, strict=True)
        if isinstance(space, Tuple):
            return list(rows)
        return [dict(zip(parts, row, strict=True)) for row in rows]

    return convert


def _box_converter(box: Box, squash: bool) -> Callable[[ndarray], ndarray]:
    shape = (-1, *box.shape)
    is_whole = np.issubdtype(box.dtype, np.integer)
    shift, factor = box_scale(box, squash)
    is_scaled = bool((factor != 1).any() or (shift != 0).any())

    def convert(actions: ndarray) -> ndarray:
        rows = actions.reshape(shape)
        if squash:
            rows = np.tanh(rows)
        if is_scaled:
            rows = shift + factor * rows
        rows = np.minimum(np.maximum(rows, box.low), box.high)
        if is_whole:
            rows = np.rint(rows)
        return rows.astype(box.dtype, copy=False)

    return convert


def box_scale(box: Box, squash: bool) -> tuple[ndarray, ndarray]:
    """Return shift and factor, of a Box's shape, from the policy's actions to the Box.

    Squashed actions are scaled from [-1, 1] to the bounds. So are others whose bounds do not fit a
    standard normal, with which a policy begins: one of them is farther than FARTHEST from 0, or
    fewer than LEAST_SHARE of the samples are between them. Numbers without bounds, or with one
    value only, keep their unit."""
    low, high = box.low.astype(np.float64), box.high.astype(np.float64)
    farthest = np.maximum(np.abs(low), np.abs(high))
    erf = np.vectorize(math.erf)
    share = (erf(high / math.sqrt(2)) - erf(low / math.sqrt(2))) / 2
    fits = (farthest <= FARTHEST) & (share >= LEAST_SHARE)
    is_scaled = squash | (~fits & (low < high) & (farthest < UNLIMITED))
    with np.errstate(invalid="ignore"):  # the middle of infinite bounds
        middle = box.low / 2 + box.high / 2
        half = box.high / 2 - box.low / 2
    zeros, ones = np.zeros_like(middle), np.ones_like(half)
    return np.where(is_scaled, middle, zeros), np.where(is_scaled, half, ones)


def mask_converter(space: Space[Any]) -> Callable[[Any], ndarray]:
    """Return a function from an environment's action mask to the policy's, (M,) bool.

    The policy's mask has K columns for each discrete choice, where K is the size of the largest.
    The environment's mask has a 0 or 1 for each action of each choice, in one array or one per
    choice; for a Tuple or a Dict, a mask for each part; None allows everything. The function raises
    BadValue for a wrong number of entries, or if a choice has no allowed action."""
    if parts := parts_of(space):
        converters = {key: mask_converter(part) for key, part in parts.items()}

        def convert_parts(allowed: Any) -> ndarray:
            if isinstance(space, Tuple):
                allowed = enumerate(allowed or ())
            given = dict(allowed or {})
            return np.concatenate([own(given.get(key)) for key, own in converters.items()])

        return convert_parts
    if isinstance(space, Box):
        return lambda allowed: np.ones(0, np.bool_)
    sizes = choices_of(space)
    exists = np.arange(sizes.max()) < sizes[:, None]

    def convert(allowed: Any) -> ndarray:
        mask = exists.copy()
        if allowed is not None:
            numbers = allowed if isinstance(allowed, ndarray) else np.hstack(allowed)
            if numbers.size != exists.sum() or not np.isin(numbers, (0, 1)).all():
                raise BadValue(
                    f"its action_mask {allowed} does not have {exists.sum()} zeros and ones for "
                    f"{space}"
                )
            mask[exists] = numbers.ravel()
        if not mask.any(axis=1).all():
            raise BadValue("its action_mask allows no action")
        return mask.ravel()

    return convert


def to_json(space: Space[Any]) -> Any:
    """Return a space as JSON values; a leaf without numbers, such as Text, as its name."""
    if isinstance(space, Dict):
        return {"Dict": {key: to_json(part) for key, part in space.spaces.items()}}
    if isinstance(space, Tuple):
        return {"Tuple": [to_json(part) for part in space]}
    if isinstance(space, Discrete):
        return {"Discrete": [int(space.n), int(space.start)]}
    if isinstance(space, MultiDiscrete):
        return {"MultiDiscrete": [space.nvec.tolist(), space.start.tolist()]}
    if isinstance(space, MultiBinary):
        return {"MultiBinary": [int(x) for x in space.shape]}
    if isinstance(space, Box):
        bounds = [_shortened(x) for x in (space.low, space.high)]
        return {"Box": [*bounds, [int(x) for x in space.shape], str(space.dtype)]}
    return {"Space": type(space).__name__}


def from_json(content: Any) -> Space[Any]:
    """Return the space of which to_json made JSON values."""
    ((kind, about),) = content.items()
    if kind == "Dict":
        return Dict({key: from_json(part) for key, part in about.items()})
    if kind == "Tuple":
        return Tuple([from_json(part) for part in about])
    if kind == "Discrete":
        return Discrete(about[0], start=about[1])
    if kind == "MultiDiscrete":
        return MultiDiscrete(np.array(about[0]), start=np.array(about[1]))
    if kind == "MultiBinary":
        return MultiBinary(about)
    if kind == "Box":
        low, high, shape, dtype = about
        bounds = [np.broadcast_to(np.array(x, dtype), shape) for x in (low, high)]
        return Box(*bounds, dtype=np.dtype(dtype).type)
    return Space()


def _shortened(bounds: ndarray) -> Any:
    """Return bounds as a list, or as one number if all are the same."""
    is_same = bounds.size and (bounds == bounds.flat[0]).all()
    return bounds.flat[0].item() if is_same else bounds.tolist()
