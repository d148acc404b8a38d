"""Read what a policy is given from Python: observations, infos and actions, of one or of n."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium import Env, Space
from gymnasium.spaces import Box
from numpy import ndarray

from ppo.envs.infos import info_of
from ppo.envs.make import preprocess
from ppo.envs.spaces import action_columns, check_columns, leaves
from ppo.envs.trees import to_numpy
from ppo.envs.values import MAX_FLOAT32, MAX_SIZE_FOR_PYTHON, describe_value

if TYPE_CHECKING:
    from ppo.config.config import Config
    from ppo.envs.probe import Spaces

Rows = tuple[ndarray, bool]  # (n, ...), and whether they are a batch; n is 1 for one


class Observations(NamedTuple):
    """Observations as rows (n, *observation), whether they are a batch (n is 1 for one), an info
    for each row, and what a reader is to remember of them."""

    rows: ndarray
    is_batch: bool
    infos: Sequence[Any]
    memory: Any = None


class Reader:
    """Reads observations as make_env() shows them: an array (*observation), or (n, *observation)
    for n. A subclass may read others, also such that follow what was shown before."""

    def __init__(self, config: "Config", spaces: "Spaces") -> None:
        self.config = config
        self.spaces = spaces

    def finish(self, config: "Config", env: Env) -> Env:
        """Preprocess an environment of make_env(), whose observations are read."""
        return preprocess(config, env)

    def read(
        self, observation: Any, info: Any, needed: Sequence[str], network: str = "policy"
    ) -> Observations:
        """Return observations as rows.

        info: None; that of the observation; of n, a list of them, or one dict as gymnasium's vector
        environments return it; needed: the parts of an observation that count, for a network of
        that name. Raises ValueError for another shape or kind, for what is not finite in float32,
        and for another number of infos; the message says what is read."""
        array = to_array(observation, "observation")
        rows, is_batch = as_rows(array, self.spaces.observations, "observation")
        check_finite(rows, "observation", is_batch)
        return Observations(rows, is_batch, read_infos(info, len(rows), is_batch))

    def remember(self, read: Observations) -> None:
        """Let the next observations follow those that were read."""

    def reset(self, episode: int | None = None) -> None:
        """Forget what was shown before, or that of one of n episodes."""


def to_array(value: Any, name: str) -> ndarray:
    try:
        return to_numpy(value)
    except (TypeError, ValueError):  # such as a list of arrays of different shapes
        raise ValueError(f"{name} is no array of numbers: give one") from None


def fits(array: ndarray, space: Space[Any]) -> bool:
    """Return whether an array is of the shape of a space, or of n of it."""
    return array.shape == space.shape or (array.shape[1:] == space.shape and array.size > 0)


def as_rows(rows: ndarray, space: Any, name: str) -> Rows:
    """Return rows (n, *shape) of a space, and whether they are a batch: one value and a batch are
    told apart by their shapes, here only. Raises ValueError for another shape or kind of dtype."""
    if not fits(rows, space):
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
        rows = converted(rows, space.dtype, name, is_batch)
    return rows, is_batch


def converted(rows: ndarray, dtype: np.dtype[Any], name: str, is_batch: bool) -> ndarray:
    """Return rows (n, ...) in another dtype. Raises ValueError if more than precision would be
    lost, as of pixels between 0 and 1."""
    is_number = rows.dtype.kind in "biuf"
    with np.errstate(invalid="ignore", over="ignore"):
        found = rows.astype(dtype) if is_number else rows
    if not is_number or (dtype.kind != "f" and not (found == rows).all()):
        check_finite(rows, name, is_batch)
        raise ValueError(f"{name} is {rows.dtype} with values that {dtype} has not: give {dtype}")
    return found


def check_finite(rows: ndarray, name: str, is_batch: bool) -> None:
    """Raise ValueError if a number of rows (n, ...) is not finite, or would not be in float32."""
    if rows.dtype.kind != "f":
        return
    if rows.size <= MAX_SIZE_FOR_PYTHON and sum(map(abs, rows.ravel().tolist())) <= MAX_FLOAT32:
        return  # the usual case, in a fifth of the time
    is_finite = np.isfinite(rows) if rows.dtype.itemsize <= 4 else np.abs(rows) <= MAX_FLOAT32
    if not is_finite.all():
        check_rows(is_finite, rows, name, is_batch, "is not finite in float32")


def check_rows(are_right: ndarray, rows: ndarray, name: str, is_batch: bool, problem: str) -> None:
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
        check_finite(table, "action", is_batch)
        if not isinstance(leaf, Box):
            table = converted(table, leaf.dtype, "action", is_batch)
        tables.append(table)
    columns = action_columns(space, tables, squash, scale)
    check_columns(space, columns)
    return columns
