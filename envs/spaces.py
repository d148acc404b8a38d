"""Convert between the policy's columns of numbers and an environment's actions, however nested."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple, flatdim
from numpy import ndarray

Converter = Callable[[Any], Any]
INSIDE = 0.999  # of the way from a Box's middle to its bounds
FARTHEST = 3.0  # bound that a standard normal reaches: one of 370 samples is farther from 0
LEAST_SHARE = 0.25  # of a standard normal's samples that bounds must not clip
UNLIMITED = 1e9  # a bound beyond this is none: MuJoCo writes 1e10, others the largest float
MAX_SIZE = 2**24  # numbers of a space, and choices of an action: no more are read from a file
ACTION_MASK = "action_mask"  # in an info: which actions the environment allows next


def action_converter(space: Space[Any], squash: bool = False, scale: bool = False) -> Converter:
    """Return a function from the policy's actions (n, D) to the actions of n environments.

    squash: scale tanh(action) to a Box's bounds; otherwise clip to them, here only, so that the
    learner sees unclipped actions, after scaling those from [-1, 1] to their bounds that, with
    scale, are_scaled names. Discrete actions are shifted by the space's start."""
    if parts := _parts(space):
        converters = [action_converter(part, squash, scale) for part in parts.values()]
        cuts = np.cumsum([_num_columns(part) for part in parts.values()])[:-1]

        def convert(actions: ndarray) -> list[Any]:
            columns = np.split(actions, cuts, axis=1)
            converted = [own(column) for own, column in zip(converters, columns, strict=True)]
            rows = zip(*converted, strict=True)
            if isinstance(space, Tuple):
                return list(rows)
            return [dict(zip(parts, row, strict=True)) for row in rows]

        return convert
    if isinstance(space, Box):
        return _box_converter(space, squash, scale)
    start = getattr(space, "start", 0)
    if isinstance(space, Discrete):
        return lambda actions: (actions.reshape(-1).astype(np.int64, copy=False) + start).tolist()
    assert space.shape is not None
    shape = (-1, *space.shape)
    return lambda actions: (actions.reshape(shape) + start).astype(space.dtype, copy=False)


def are_scaled(box: Box) -> ndarray:
    """Return which numbers of a Box, of its shape, are scaled from [-1, 1] to their bounds.

    A policy begins with about a standard normal. It fits bounds as they are if both are within
    FARTHEST of 0 and at least LEAST_SHARE of its samples are between them, as of [-0.4, 0.4],
    [0, 1] and [-3, 3], but not of [-0.1, 0.1], [0, 10] or [5, 6]. Numbers that lack a bound, or
    have one value only, are never scaled."""
    low, high = box.low.astype(np.float64), box.high.astype(np.float64)
    farthest = np.maximum(np.abs(low), np.abs(high))
    erf = np.vectorize(math.erf)
    share = (erf(high / math.sqrt(2)) - erf(low / math.sqrt(2))) / 2
    fits = (farthest <= FARTHEST) & (share >= LEAST_SHARE)
    return ~fits & (low < high) & (farthest < UNLIMITED)


def scaled_bounds(space: Space[Any]) -> list[str]:
    """Return the bounds of those numbers of a space that are scaled, each pair once."""
    found = []
    for _, leaf in leaves(space):
        if isinstance(leaf, Box):
            chosen = are_scaled(leaf)
            pairs = zip(leaf.low[chosen], leaf.high[chosen], strict=True)
            found += [f"[{low:g}, {high:g}]" for low, high in pairs]
    return [*dict.fromkeys(found)]


def scale_of(box: Box, squash: bool, scale: bool) -> tuple[ndarray, ndarray] | None:
    """Return shift and factor, of a Box's shape, that lead from [-1, 1] to the bounds of all
    numbers if they are squashed, else of those that are scaled; None if they change nothing."""
    chosen = are_scaled(box) if scale and not squash else np.full(box.shape, squash)
    if not chosen.any():
        return None
    with np.errstate(invalid="ignore"):  # the middle of infinite bounds, which are not chosen
        middle = box.low / 2 + box.high / 2
        half = box.high / 2 - box.low / 2
    zero, one = np.zeros_like(middle), np.ones_like(half)
    return np.where(chosen, middle, zero), np.where(chosen, half, one)


def _box_converter(space: Box, squash: bool, scale: bool) -> Converter:
    shape = (-1, *space.shape)
    dtype = space.dtype
    low = space.low
    high = space.high
    is_whole = dtype.kind in "iu"
    scaling = scale_of(space, squash, scale)

    def convert(actions: ndarray) -> ndarray:
        rows = actions.reshape(shape)
        if squash:
            rows = np.tanh(rows)
        if scaling:
            shift, factor = scaling
            rows = shift + factor * rows
        rows = np.minimum(np.maximum(rows, low), high)
        if is_whole:
            rows = np.rint(rows)
        return rows.astype(dtype, copy=False)

    return convert


def action_columns(
    space: Space[Any], actions: Sequence[ndarray], squash: bool = False, scale: bool = False
) -> ndarray:
    """Return the policy's actions (n, D) that action_converter turns into these: its inverse.

    actions: an array (n, *leaf.shape) for each leaf, in the order of leaves; squash, scale: as
    there. The inverse of tanh is taken within INSIDE of a Box's middle: at its bounds it is
    infinite."""
    columns = []
    dtype: Any = np.int64
    for (_, leaf), own in zip(leaves(space), actions, strict=True):
        if isinstance(leaf, Box):
            dtype = np.float32
            if scaling := scale_of(leaf, squash, scale):
                shift, factor = scaling
                own = np.subtract(own, shift, dtype=np.float64) / np.where(factor > 0, factor, 1)
            if squash:
                own = np.arctanh(np.clip(own, -INSIDE, INSIDE))
        else:
            own = own.astype(np.int64) - getattr(leaf, "start", 0)
        columns.append(own.reshape(len(own), -1))
    return np.concatenate(columns, axis=1, dtype=dtype, casting="unsafe")


def mask_converter(space: Space[Any]) -> Converter:
    """Return a function from an environment's action mask to the policy's, (M,) bool.

    The policy's mask has K columns for each discrete choice, where K is the size of the largest.
    The environment's mask has a 0 or 1 for each action of each choice, in one array or in one per
    choice; of a Tuple or Dict, a mask for each part; None allows everything. The function raises
    ValueError for a wrong number of entries, or if a choice has no allowed action."""
    if parts := _parts(space):
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
            numbers = numbers.ravel()
            is_binary = ((numbers == 0) | (numbers == 1)).all()
            if len(numbers) != exists.sum() or not is_binary:
                raise ValueError(
                    f"its action_mask {allowed} is not {exists.sum()} zeros and ones for {space}"
                )
            mask[exists] = numbers
        if not mask.any(axis=1).all():
            raise ValueError("its action_mask allows no action")
        return mask.ravel()

    return convert


def check_columns(space: Space[Any], columns: ndarray) -> None:
    """Raise ValueError unless columns (n, D) are a policy's actions in a space."""
    if columns.shape[1] != _num_columns(space):
        raise ValueError(f"actions of {columns.shape[1]} numbers are not of {space}")
    for leaf, own in split_columns(space, columns):
        is_inside = np.isfinite(own)
        if not isinstance(leaf, Box):
            is_inside &= (own >= 0) & (own < choices_of(leaf))
        if not is_inside.all():
            raise ValueError(f"an action is outside of {leaf}")


def holds_numbers(space: Space[Any]) -> bool:
    """Return whether every leaf of a space has a fixed number, at least 1, of numbers."""
    kinds = (Box, Discrete, MultiDiscrete, MultiBinary)
    return all(isinstance(leaf, kinds) and flatdim(leaf) for _, leaf in leaves(space))


def leaves(space: Space[Any], path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield (path, space) for each leaf of a nested space; a path is the tuple of keys to it.

    path: that of the space itself."""
    parts = _parts(space)
    if not parts:
        yield path, space
    for key, part in parts.items():
        yield from leaves(part, (*path, key))


def choices_of(leaf: Any) -> ndarray:
    """Return the number of choices (D,) that each column of a discrete leaf has."""
    if isinstance(leaf, MultiBinary):
        return np.full(math.prod(leaf.shape), 2)
    if isinstance(leaf, MultiDiscrete):
        return np.ravel(leaf.nvec)
    return np.array([leaf.n])


def split_columns(space: Space[Any], columns: ndarray) -> Iterator[tuple[Any, ndarray]]:
    """Pair each leaf of an action space with its own of the policy's columns (n, D)."""
    parts = [leaf for _, leaf in leaves(space)]
    cuts = np.cumsum([_num_columns(leaf) for leaf in parts])[:-1]
    return zip(parts, np.split(columns, cuts, axis=1), strict=True)


def _parts(space: Space[Any]) -> dict[Any, Any]:
    """Return the parts of a Tuple or a Dict, by index or name."""
    if isinstance(space, Tuple):
        return dict(enumerate(space))
    if isinstance(space, Dict):
        return dict(space.spaces)
    return {}


def _num_columns(space: Space[Any]) -> int:
    """Return the number of columns D that actions of a space have."""
    return sum(math.prod(leaf.shape) for _, leaf in leaves(space))


def without_mask(make: Callable[..., Any], parts: Mapping[str, Any]) -> Any:
    """Return the part that is left beside a mask; several, joined by make."""
    rest = {name: part for name, part in parts.items() if name != ACTION_MASK}
    return make(rest) if len(rest) > 1 else next(iter(rest.values()))
