"""Read what a policy is given from Python: observations, infos and actions, of one or of n."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium import Env, Space
from gymnasium.spaces import Box, Discrete, MultiBinary
from gymnasium.wrappers import DtypeObservation, ReshapeObservation
from numpy import ndarray

from ppo.envs.infos import info_of
from ppo.envs.make import preprocess
from ppo.envs.observations import PIXELS, ShownPart, pack, push, shown_of
from ppo.envs.spaces import (
    ACTION_MASK,
    action_columns,
    check_columns,
    choices_of,
    leaves,
    without_mask,
)
from ppo.envs.trees import to_numpy
from ppo.envs.values import MAX_FLOAT32, MAX_SIZE_FOR_PYTHON, describe_value
from ppo.models.observation_parts import images_of, parts_of

if TYPE_CHECKING:
    from ppo.config.config import Config

Rows = tuple[ndarray, bool]  # (n, ...), and whether they are a batch; n is 1 for one
Stacks = dict[str, ndarray]  # of the last images or vectors of an episode, by the names of parts


class Observations(NamedTuple):
    """Observations as rows (n, *observation), whether they are a batch (n is 1 for one), and of
    each row the stacks that were made, [] if there are none."""

    rows: ndarray
    is_batch: bool
    stacks: list[Stacks]


def preprocess_for_predict(config: "Config", env: Env) -> Env:
    """Preprocess an environment, but so that read_observations can tell one of its observations
    from what the environment itself shows: the one-hot vector of a Discrete, and a stack of the
    shape of an image, are of floats, and a scalar stays one."""
    env = preprocess(config, env)
    space: Any = env.observation_space
    part = _single_part(space)
    if part is None or hasattr(space, "layer"):
        return env
    if isinstance(part.space, Discrete) or part.space.shape == space.shape:
        return DtypeObservation(env, np.float32)
    if part.space.shape == ():
        return ReshapeObservation(env, ())
    return env


def read_observations(
    space: Box,
    observation: Any,
    needed: Sequence[str],
    reader: str = "policy",
    before: Sequence[Stacks] = (),
) -> Observations:
    """Return observations as rows (n, *observation).

    observation: what the environment itself shows; n of these in arrays (n, ...), nested in the
    same way, or, of dicts and tuples, in a list. Or a dict of the parts by their names, of which
    images may be stacks; or, in the form of space, an array (*observation) or (n, *observation).
    Only the parts needed are read. before: the stacks on which is pushed what the environment
    shows, of each row; an empty one, or none at all, where episodes begin. Raises ValueError for a
    part that is missing, of another shape or kind, not finite in float32, or a choice that its
    space does not have, for another number of stacks, and for an array that may be one or n
    observations, or preprocessed or not; the message says what the reader reads."""
    layer: Any = getattr(space, "layer", space)
    names = needed if layer is space else [*shown_of(layer)]
    is_list = isinstance(observation, list) and bool(observation)
    if is_list and all(_is_nested(layer, one) for one in observation):
        found, is_batch = _read_list(layer, observation, names, reader), True
    elif _is_nested(layer, observation):
        found, is_batch = _read_parts(layer, observation, names, reader)
    else:
        rows, is_batch = _read_array(space, _to_array(observation, "observation"), names)
        if rows.shape[1:] == space.shape:
            return Observations(rows, is_batch, [])
        found = {"observation": rows}
    stacks: list[Stacks] = [{} for _ in next(iter(found.values()))]

    def stacked(name: str, newest: ndarray, depth: int) -> ndarray:
        if newest.shape[-1] == depth:
            return newest
        for made, last, one in zip(
            stacks, _stacks_of(name, len(stacks), before), newest, strict=True
        ):
            made[name] = push(one, last, depth)
        return np.stack([made[name] for made in stacks])

    for name, box in images_of(layer).items():
        if name in found:
            found[name] = stacked(name, found[name], box.shape[-1])
    parts_of_rows = zip(*found.values(), strict=True)
    rows = np.stack([pack(layer, dict(zip(found, row, strict=True))) for row in parts_of_rows])
    if layer is not space:
        rows = stacked("observation", rows.reshape(len(rows), -1), *space.shape)
    return Observations(rows, is_batch, stacks if any(stacks) else [])


def _stacks_of(name: str, num_rows: int, before: Sequence[Stacks]) -> list[ndarray | None]:
    """Return the last stack of a part in each row, None where an episode begins."""
    if not any(before):
        return [None] * num_rows
    if len(before) != num_rows:
        raise ValueError(
            f"the policy remembers what {len(before)} episodes have shown, and is given {num_rows} "
            "observations: call reset() where episodes begin"
        )
    if any(name not in last for last in before if last):
        raise ValueError(
            f"predict was not given {name} before: give its stack, as make_env() shows it"
        )
    return [last.get(name) for last in before]


def _read_parts(
    space: Box, observation: Any, needed: Sequence[str], reader: str
) -> tuple[dict[str, ndarray], bool]:
    """Read the parts of one nested observation or of n: (n, ...) by name, and whether they are a
    batch."""
    found: dict[str, ndarray] = {}
    kinds = {}
    for name in needed:
        part = shown_of(space)[name]
        try:
            value = _value_of(observation, name, part.path)
        except (LookupError, TypeError):
            raise ValueError(
                f"the observation has no {name}: the {reader} reads {', '.join(needed)}"
            ) from None
        box = parts_of(space)[name]
        found[name], is_batch = _read_part(part, box, _to_array(value, name), name)
        kinds[name] = f"{len(found[name])} rows" if is_batch else "one"
    if len({*kinds.values()}) > 1:
        sizes = ", ".join(f"{name} of {kind}" for name, kind in kinds.items())
        raise ValueError(f"the parts of the observation are not of one length: {sizes}")
    return found, is_batch


def split_masks(observation: Any, info: Any) -> tuple[Any, Any]:
    """Return what is observed beside an action mask, and infos with that.

    observation, info: of one or of n, as read_observations and read_infos read them."""
    if isinstance(observation, list) and all(isinstance(one, Mapping) for one in observation):
        infos = read_infos(info, len(observation), True)
        pairs = [split_masks(*pair) for pair in zip(observation, infos, strict=True)]
        return [one for one, _ in pairs], [own for _, own in pairs]
    if not isinstance(observation, Mapping) or ACTION_MASK not in observation:
        return observation, info
    mask = observation[ACTION_MASK]
    if isinstance(info, list):
        info = [{ACTION_MASK: own, **one} for own, one in zip(mask, info, strict=False)]
    else:
        info = {ACTION_MASK: mask, **(info or {})}
    rest = without_mask(dict, observation)
    return rest if isinstance(rest, (Mapping, tuple)) else {"observation": rest}, info


def _read_list(
    space: Box, observations: list[Any], needed: Sequence[str], reader: str
) -> dict[str, ndarray]:
    """Read the parts of n nested observations."""
    found = []
    for i, observation in enumerate(observations):
        try:
            parts, is_batch = _read_parts(space, observation, needed, reader)
        except ValueError as error:
            raise ValueError(f"row {i} of the observations: {error}") from None
        if is_batch:
            raise ValueError(f"row {i} of the observations is a batch itself: give one")
        found.append(parts)
        if [part.shape for part in parts.values()] != [part.shape for part in found[0].values()]:
            raise ValueError(f"row {i} of the observations has other shapes than row 0")
    return {name: np.concatenate([parts[name] for parts in found]) for name in needed}


def _read_array(space: Box, array: ndarray, needed: Sequence[str]) -> Rows:
    """Read an array: in the form of space, or as an environment with a single part shows it, then
    not stacked.

    n choices of a Discrete, whole numbers, may be of the shape of a one-hot vector, a batch of one
    scalar of that of a preprocessed one, and an image in colours of that of a stack of three gray
    ones: an array that is valid in both forms is refused."""
    part = _single_part(space)
    if part is None or (hasattr(space, "layer") and array.shape == space.shape):
        return _read_rows(space, array, needed)
    is_same = part.space.shape == space.shape
    if (array.shape == part.space.shape and not is_same) or not _fits(array, space):
        return _read_part(part, space, array, "observation")
    may_be_shown = array.dtype.kind in "iu" or not (is_same or isinstance(part.space, Discrete))
    if not (may_be_shown and _fits(array, part.space)):
        return _read_rows(space, array, needed)
    try:
        found = _read_part(part, space, array, "observation")
    except ValueError as error:
        try:
            return _read_rows(space, array, needed)
        except ValueError:
            raise error from None
    try:
        _read_rows(space, array, needed)
    except ValueError:
        return found
    shown, other = f"{len(array)} that the environment shows", f"shape {(1, *array.shape)}"
    if is_same:
        shown, other = "one that the environment shows", "floats"
    raise ValueError(
        f"an observation of shape {array.shape} may be {shown}, of {part.space}, or one that is "
        f"preprocessed: give {{'observation': ...}} with it if it is the former, and {other} if it "
        "is the latter"
    )


def _read_part(part: ShownPart, box: Box, array: ndarray, name: str) -> Rows:
    """Read a part as the environment shows it; of images, also stacks in a Box."""
    if part.kind in PIXELS and not _fits(array, part.space) and _fits(array, box):
        return _as_rows(array, box, name)
    rows, is_batch = _as_rows(array, part.space, name)
    if isinstance(part.space, Box):
        _check_finite(rows, name, is_batch)
    else:
        are_inside = np.array([part.space.contains(row) for row in rows])
        _check(are_inside, rows, name, is_batch, f"is outside of {part.space}")
    return np.stack([part.read(row) for row in rows]), is_batch


def _read_rows(space: Box, array: ndarray, needed: Sequence[str]) -> Rows:
    """Read an array in the form of space, which may be a stack of vectors."""
    rows, is_batch = _as_rows(array, space, "observation")
    layer: Any = getattr(space, "layer", space)
    if not hasattr(layer, "shown"):
        _check_finite(rows, "observation", is_batch)
        return rows, is_batch
    shown = shown_of(layer)
    vectors = rows.reshape(len(rows), -1, *layer.shape)
    for name in needed if layer is space else shown:
        part = shown[name]
        columns = vectors
        if len(shown) > 1:
            if part.kind in PIXELS:
                continue
            columns = np.ascontiguousarray(vectors[..., layer.places[name]])
            columns = columns.view(layer.parts[name].dtype)
        if isinstance(part.space, Box):
            _check_finite(columns, name, is_batch)
        else:
            are_choices = _are_choices(part.space, columns)
            _check(are_choices, columns, name, is_batch, f"is no vector of {part.space}")
    return rows, is_batch


def _are_choices(leaf: Space[Any], vectors: ndarray) -> ndarray:
    """Return which vectors (..., k) gymnasium.spaces.flatten makes of a space of choices."""
    are_bits = ((vectors == 0) | (vectors == 1)).all(-1)
    if isinstance(leaf, MultiBinary):
        return are_bits
    starts = np.cumsum(choices_of(leaf)) - choices_of(leaf)
    counts = np.add.reduceat(vectors == 1, starts, axis=-1, dtype=np.int64)
    return are_bits & (counts == 1).all(-1)


def _is_nested(space: Box, observation: Any) -> bool:
    """Return whether an observation is given by its parts."""
    if isinstance(observation, ndarray):  # the usual case
        return False
    is_tuple = isinstance(observation, tuple) and "observation" not in parts_of(space)
    return is_tuple or isinstance(observation, Mapping)


def _value_of(observation: Any, name: str, path: tuple[Any, ...]) -> Any:
    """Return a part of a nested observation. Raises LookupError or TypeError if it is missing."""
    if isinstance(observation, Mapping) and (name in observation or not path):
        return observation[name]
    return reduce(getitem, path, observation)


def _single_part(space: Any) -> ShownPart | None:
    """Return the only part of what an environment shows, if that is no dict or tuple and is
    preprocessed: of another shape, or gray images of which three are stacked."""
    layer: Any = getattr(space, "layer", space)
    if layer is space and not hasattr(space, "shown"):
        return None
    part = shown_of(layer).get("observation")
    if not part or part.path:
        return None
    is_gray = part.kind == "pixels" and part.space.shape[2:] == (3,)
    return part if is_gray or part.space.shape != space.shape else None


def _to_array(value: Any, name: str) -> ndarray:
    try:
        return to_numpy(value)
    except (TypeError, ValueError):  # such as a list of arrays of different shapes
        raise ValueError(f"{name} is no array of numbers: give one") from None


def _fits(array: ndarray, space: Space[Any]) -> bool:
    """Return whether an array is of the shape of a space, or of n of it."""
    return array.shape == space.shape or (array.shape[1:] == space.shape and array.size > 0)


def _as_rows(rows: ndarray, space: Any, name: str) -> Rows:
    """Return rows (n, *shape) of a space, and whether they are a batch: one value and a batch are
    told apart by their shapes, here only. Raises ValueError for another shape or kind of dtype."""
    if not _fits(rows, space):
        batch = ", ".join(map(str, ("n", *space.shape)))
        stack = ", the last observations in one" if hasattr(space, "layer") else ""
        raise ValueError(
            f"{name} is of shape {rows.shape}: give {space.shape}, or "
            f"({batch}) for n at once{stack}"
        )
    is_batch = rows.shape != space.shape
    if not is_batch:
        rows = rows[None]
    if rows.dtype != space.dtype:
        rows = _converted(rows, space.dtype, name, is_batch)
    return rows, is_batch


def _converted(rows: ndarray, dtype: np.dtype[Any], name: str, is_batch: bool) -> ndarray:
    """Return rows (n, ...) in another dtype. Raises ValueError if more than precision would be
    lost, as of pixels between 0 and 1."""
    is_number = rows.dtype.kind in "biuf"
    with np.errstate(invalid="ignore", over="ignore"):
        found = rows.astype(dtype) if is_number else rows
    if not is_number or (dtype.kind != "f" and not (found == rows).all()):
        _check_finite(rows, name, is_batch)
        raise ValueError(f"{name} is {rows.dtype} with values that {dtype} has not: give {dtype}")
    return found


def _check_finite(rows: ndarray, name: str, is_batch: bool) -> None:
    """Raise ValueError if a number of rows (n, ...) is not finite, or would not be in float32."""
    if rows.dtype.kind != "f":
        return
    if rows.size <= MAX_SIZE_FOR_PYTHON and sum(map(abs, rows.ravel().tolist())) <= MAX_FLOAT32:
        return  # the usual case, in a fifth of the time
    is_finite = np.isfinite(rows) if rows.dtype.itemsize <= 4 else np.abs(rows) <= MAX_FLOAT32
    if not is_finite.all():
        _check(is_finite, rows, name, is_batch, "is not finite in float32")


def _check(are_right: ndarray, rows: ndarray, name: str, is_batch: bool, problem: str) -> None:
    """Raise ValueError if not all rows (n, ...) are right. are_right: of rows, or of numbers."""
    if are_right.all():
        return
    where = np.argwhere(~are_right)[0]
    row = f"row {where[0]} of " if is_batch else ""
    subject = f"the {name}" if name in ("observation", "action") else f"{name} of the observation"
    value = describe_value(rows[tuple(where)].tolist())
    raise ValueError(f"{row}{subject} {problem}: {value}")


def read_infos(info: Any, num_rows: int, is_batch: bool) -> Sequence[Any]:
    """Return an info for each row. info: None; one; of a batch, a list of them, or one dict as
    gymnasium's vector environments return it. Raises ValueError for another number of them."""
    if info is None:
        return [{}] * num_rows
    if not is_batch:
        return [info]
    if isinstance(info, Mapping):
        return [info_of(dict(info), i, num_rows) for i in range(num_rows)]
    if len(info) != num_rows:
        raise ValueError(f"{len(info)} infos are given for {num_rows} observations")
    return info


def read_actions(
    space: Space[Any], actions: Any, num_rows: int, is_batch: bool, squash: bool, scale: bool
) -> ndarray:
    """Return the policy's columns (n, D) of an environment's action or, of a batch, of n of them.

    squash, scale: as ppo.envs.spaces.action_columns takes them. Raises ValueError for another
    number of actions, or for one of another shape, outside of its choices or not finite."""
    rows = actions if is_batch else [actions]
    if len(rows) != num_rows:
        raise ValueError(f"{len(rows)} actions are given for {num_rows} observations")
    tables = []
    for path, leaf in leaves(space):
        try:
            table = np.stack([to_numpy(reduce(getitem, path, row)) for row in rows])
        except (LookupError, TypeError, ValueError):
            raise ValueError(f"an action is not of {space}") from None
        if table.shape[1:] != leaf.shape or table.dtype.kind not in "biuf":
            raise ValueError(f"an action is of shape {table.shape[1:]}, not of {leaf}")
        _check_finite(table, "action", is_batch)
        if not isinstance(leaf, Box):
            table = _converted(table, leaf.dtype, "action", is_batch)
        tables.append(table)
    columns = action_columns(space, tables, squash, scale)
    check_columns(space, columns)
    return columns
