"""Read what a policy is given from Python: observations, infos and actions, of one or of n."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from numpy import ndarray

from ppo.envs.arrays import to_numpy
from ppo.envs.infos import info_of
from ppo.envs.observations import Part, pack
from ppo.envs.spaces import action_columns, check_columns, leaves
from ppo.models.parts import parts_of


def read_observations(
    space, observation, needed: Sequence[str], reader: str = "policy"
) -> tuple[ndarray, bool]:
    """Return observations as rows (n, *observation), and whether they are a batch; n is 1 for one.

    observation: an array (*observation) or (n, *observation) of a space of Policy.make_env; or a
    dict or tuple, nested as what the environment itself shows (and images as make_env shows them),
    or a dict of the parts by their names, of which only those needed are read: arrays of the shapes
    of their spaces, or (n, ...) of these. Raises ValueError for a missing part, or for a part of
    another shape or kind; the message says what the reader reads."""
    is_nested = isinstance(observation, tuple) and "observation" not in parts_of(space)
    if not (is_nested or isinstance(observation, Mapping)):
        return _as_rows(observation, space, "observation")
    shown = getattr(space, "shown", {"observation": Part((), space, np.asarray)})
    found: dict[str, ndarray] = {}
    kinds = {}
    for name in needed:
        part = shown[name]
        try:
            is_flat = isinstance(observation, Mapping) and name in observation
            value = observation[name] if is_flat else reduce(getitem, part.path, observation)
        except (LookupError, TypeError):
            raise ValueError(
                f"the observation has no {name}: the {reader} reads {', '.join(needed)}"
            ) from None
        rows, is_batch = _as_rows(value, part.space, name)
        if not isinstance(part.space, Box) and not all(map(part.space.contains, rows)):
            raise ValueError(f"{name} of the observation is outside of {part.space}")
        found[name] = np.stack([part.read(row) for row in rows])
        kinds[name] = f"{len(rows)} rows" if is_batch else "one"
    if len({*kinds.values()}) > 1:
        sizes = ", ".join(f"{name} of {kind}" for name, kind in kinds.items())
        raise ValueError(f"the parts of the observation are not of one length: {sizes}")
    parts_of_rows = zip(*found.values(), strict=True)
    packed = [pack(space, dict(zip(found, row, strict=True))) for row in parts_of_rows]
    return np.stack(packed), is_batch


def _as_rows(value, space, name: str) -> tuple[ndarray, bool]:
    """Return rows (n, *shape) of a space, and whether they are a batch: one value and a batch are
    told apart by their shapes, here only. Raises ValueError for another shape or kind of dtype."""
    rows = to_numpy(value)
    is_batch = rows.shape != space.shape
    if is_batch and (rows.shape[1:] != space.shape or not rows.size):
        batch = ", ".join(map(str, ("n", *space.shape)))
        raise ValueError(
            f"{name} is of shape {rows.shape}: give {space.shape}, or ({batch}) for n at once"
        )
    if rows.dtype != space.dtype:
        rows = _converted(rows, space.dtype, name)
    return rows if is_batch else rows[None], is_batch


def _converted(rows: ndarray, dtype, name: str) -> ndarray:
    """Return rows in another dtype. Raises ValueError if more than precision would be lost, as of
    pixels between 0 and 1."""
    is_number = rows.dtype.kind in "biuf"
    with np.errstate(invalid="ignore"):
        found = rows.astype(dtype) if is_number else rows
    if not (is_number and (np.can_cast(rows.dtype, dtype, "same_kind") or (found == rows).all())):
        raise ValueError(f"{name} is {rows.dtype} with values that {dtype} has not: give {dtype}")
    return found


def read_infos(info, num_rows: int, is_batch: bool) -> Sequence[Any]:
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


def read_actions(space, actions, num_rows: int, is_batch: bool, squash: bool) -> ndarray:
    """Return the policy's columns (n, D) of an environment's action or, of a batch, of n of them.

    squash: as ppo.envs.spaces.action_columns takes it. Raises ValueError for another number of
    actions, or for one of another shape or outside of its choices."""
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
        tables.append(table)
    columns = action_columns(space, tables, squash)
    check_columns(space, columns)
    return columns
