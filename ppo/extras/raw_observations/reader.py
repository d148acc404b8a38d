"""Read observations as an environment itself shows them, without the environment."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Env, Space
from gymnasium.spaces import Box, Discrete, MultiBinary
from gymnasium.wrappers import DtypeObservation, ReshapeObservation
from numpy import ndarray

from ppo.envs.make import preprocess
from ppo.envs.observations import PIXELS, ShownPart, pack, shown_of
from ppo.envs.spaces import ACTION_MASK, choices_of, without_mask
from ppo.models.observation_parts import images_of, parts_of
from ppo.policy.reader import (
    Observations,
    Reader,
    Rows,
    as_rows,
    check_finite,
    check_rows,
    fits,
    read_infos,
    to_array,
)

if TYPE_CHECKING:
    from ppo.config.config import Config

Stacks = dict[str, ndarray]  # of the last images or vectors of an episode, by the names of parts


class RawReader(Reader):
    """Reads what the environment itself shows, and preprocesses it as in training: resizes images,
    makes vectors of choices, and stacks what is shown on what was shown before."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader.config, reader.spaces)
        self.stacks: list[Stacks] = []  # of each episode, {} where one begins

    def finish(self, config: "Config", env: Env) -> Env:
        """Preprocess an environment, but so that read can tell one of its observations from what
        the environment itself shows: the one-hot vector of a Discrete, and a stack of the shape of
        an image, are of floats, and a scalar stays one."""
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

    def read(
        self, observation: Any, info: Any, needed: Sequence[str], network: str = "policy"
    ) -> Observations:
        """Return observations as rows (n, *observation).

        observation: what the environment itself shows; n of these in arrays (n, ...), nested in the
        same way, or, of dicts and tuples, in a list. Or a dict of the parts by their names, of
        which images may be stacks; or, in the form of the policy's own space, an array
        (*observation) or (n, *observation). Only the parts needed are read. Raises ValueError also
        for a part that is missing, a choice that its space does not have, another number of
        observations than episodes are remembered, and an array that may be one or n observations,
        or preprocessed or not."""
        if ACTION_MASK not in getattr(self.spaces.shown, "spaces", ()):
            observation, info = split_masks(observation, info)
        rows, is_batch, stacks = self._rows(observation, needed, network)
        return Observations(rows, is_batch, read_infos(info, len(rows), is_batch), stacks)

    def remember(self, read: Observations) -> None:
        self.stacks = read.memory or self.stacks

    def reset(self, episode: int | None = None) -> None:
        if episode is None:
            self.stacks = []
        elif episode < len(self.stacks):
            self.stacks[episode] = {}

    def _rows(
        self, observation: Any, needed: Sequence[str], network: str
    ) -> tuple[ndarray, bool, list[Stacks]]:
        """Return rows, whether they are a batch, and of each row the stacks that were made, [] if
        there are none."""
        space: Any = self.spaces.observations
        layer = getattr(space, "layer", space)
        names = needed if layer is space else [*shown_of(layer)]
        is_list = isinstance(observation, list) and bool(observation)
        if is_list and all(_is_nested(layer, one) for one in observation):
            found, is_batch = _read_list(layer, observation, names, network), True
        elif _is_nested(layer, observation):
            found, is_batch = _read_parts(layer, observation, names, network)
        else:
            rows, is_batch = _read_array(space, to_array(observation, "observation"), names)
            if rows.shape[1:] == space.shape:
                return rows, is_batch, []
            found = {"observation": rows}
        stacks: list[Stacks] = [{} for _ in next(iter(found.values()))]

        def stacked(name: str, newest: ndarray, depth: int) -> ndarray:
            if newest.shape[-1] == depth:
                return newest
            before = self._stacks_of(name, len(stacks))
            for made, last, one in zip(stacks, before, newest, strict=True):
                made[name] = push(one, last, depth)
            return np.stack([made[name] for made in stacks])

        for name, box in images_of(layer).items():
            if name in found:
                found[name] = stacked(name, found[name], box.shape[-1])
        parts_of_rows = zip(*found.values(), strict=True)
        rows = np.stack([pack(layer, dict(zip(found, row, strict=True))) for row in parts_of_rows])
        if layer is not space:
            rows = stacked("observation", rows.reshape(len(rows), -1), *space.shape)
        return rows, is_batch, stacks if any(stacks) else []

    def _stacks_of(self, name: str, num_rows: int) -> list[ndarray | None]:
        """Return the last stack of a part in each row, None where an episode begins."""
        before = self.stacks
        if not any(before):
            return [None] * num_rows
        if len(before) != num_rows:
            raise ValueError(
                f"the policy remembers what {len(before)} episodes have shown, and is given "
                f"{num_rows} observations: call reset() where episodes begin"
            )
        if any(name not in last for last in before if last):
            raise ValueError(
                f"predict was not given {name} before: give its stack, as make_env() shows it"
            )
        return [last.get(name) for last in before]


def push(newest: ndarray, stack: ndarray | None, depth: int) -> ndarray:
    """Return a stack (..., depth) of images or vectors with the newest one (..., width) last,
    instead of its oldest. stack: the one before, None where an episode begins: all are the same."""
    width = newest.shape[-1]
    if stack is None:
        return np.concatenate([newest] * (depth // width), axis=-1)
    return np.concatenate([stack[..., width:], newest], axis=-1)


def split_masks(observation: Any, info: Any) -> tuple[Any, Any]:
    """Return what is observed beside an action mask, and infos with that.

    observation, info: of one or of n, as RawReader reads them."""
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


def _read_parts(
    space: Box, observation: Any, needed: Sequence[str], network: str
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
                f"the observation has no {name}: the {network} reads {', '.join(needed)}"
            ) from None
        box = parts_of(space)[name]
        found[name], is_batch = _read_part(part, box, to_array(value, name), name)
        kinds[name] = f"{len(found[name])} rows" if is_batch else "one"
    if len({*kinds.values()}) > 1:
        sizes = ", ".join(f"{name} of {kind}" for name, kind in kinds.items())
        raise ValueError(f"the parts of the observation are not of one length: {sizes}")
    return found, is_batch


def _read_list(
    space: Box, observations: list[Any], needed: Sequence[str], network: str
) -> dict[str, ndarray]:
    """Read the parts of n nested observations."""
    found = []
    for i, observation in enumerate(observations):
        try:
            parts, is_batch = _read_parts(space, observation, needed, network)
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
    if (array.shape == part.space.shape and not is_same) or not fits(array, space):
        return _read_part(part, space, array, "observation")
    may_be_shown = array.dtype.kind in "iu" or not (is_same or isinstance(part.space, Discrete))
    if not (may_be_shown and fits(array, part.space)):
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
    if part.kind in PIXELS and not fits(array, part.space) and fits(array, box):
        return as_rows(array, box, name)
    rows, is_batch = as_rows(array, part.space, name)
    if isinstance(part.space, Box):
        check_finite(rows, name, is_batch)
    else:
        are_inside = np.array([part.space.contains(row) for row in rows])
        check_rows(are_inside, rows, name, is_batch, f"is outside of {part.space}")
    return np.stack([part.read(row) for row in rows]), is_batch


def _read_rows(space: Box, array: ndarray, needed: Sequence[str]) -> Rows:
    """Read an array in the form of space, which may be a stack of vectors."""
    rows, is_batch = as_rows(array, space, "observation")
    layer: Any = getattr(space, "layer", space)
    if not hasattr(layer, "shown"):
        check_finite(rows, "observation", is_batch)
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
            check_finite(columns, name, is_batch)
        else:
            are_choices = _are_choices(part.space, columns)
            check_rows(are_choices, columns, name, is_batch, f"is no vector of {part.space}")
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
