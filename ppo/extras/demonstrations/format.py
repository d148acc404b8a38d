"""Demonstrations: their tables, and the .npz file that holds them."""

import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from io import BufferedReader
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Tuple
from numpy import ndarray
from numpy.lib import format as npy

from ppo.envs.spaces import action_columns, check_columns, holds_numbers, leaves
from ppo.envs.values import MAX_FLOAT32
from ppo.errors import ConfigError, SaveFailed
from ppo.system.files import atomic_write, new_file, open_regular
from ppo.system.hardware import physical_memory

Tables = dict[str, ndarray]
SUFFIX = ".npz"
NEEDED = ("observations", "actions", "terminations", "truncations")
MAX_READ = 1 << 20  # bytes of a file that are read at once, such as the list of what it holds
MAX_RATIO = 1032  # by which deflate, the compression of zip files, can shorten at most


@dataclass(frozen=True)
class Demonstrations:
    """Whole episodes, one after another: E of them, of S steps in all.

    observations: by name (S + E, ...), as the environment gives them, L + 1 of an episode of L
    steps; actions: by name (S, ...), as it takes them; rewards: (S,), None if they are unknown;
    terminations, truncations: (S,) bool, of which one or both are True at the last step of an
    episode, also of one that was cut off; action_masks: by name (S + E, ...), 1 for each choice
    that is allowed, none without masks; seeds: (E,) of the episodes' resets, -1 if unknown.
    The name of a nested part joins its keys by dots, and is "" if nothing is nested."""

    observations: Tables
    actions: Tables
    rewards: ndarray | None
    terminations: ndarray
    truncations: ndarray
    action_masks: Tables
    seeds: ndarray

    @property
    def rows(self) -> list[range]:
        """The rows of observations that belong to each episode."""
        (ends,) = np.nonzero(self.terminations | self.truncations)
        stops = (ends + np.arange(len(ends)) + 2).tolist()
        return [range(*pair) for pair in zip([0, *stops[:-1]], stops, strict=True)]


KINDS = [field.name for field in fields(Demonstrations)]  # of tables in a file


def name_of(path: Sequence[Any]) -> str:
    """Return the name of the part at a path of keys in a nested space."""
    return ".".join(map(str, path))


def label_of(kind: str, path: Sequence[Any]) -> str:
    """Return the name of a part's table in a file."""
    return f"{kind}.{name_of(path)}" if path else kind


def observed_leaves(space: Space[Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield (path, space) for each leaf of an observation space that a policy can observe."""
    return ((path, leaf) for path, leaf in leaves(space) if holds_numbers(leaf))


def nest(space: Space[Any], part_of: Callable[[str], Any], path: tuple[Any, ...] = ()) -> Any:
    """Return what is nested as a space is, from its parts by name. path: of keys to the space."""
    if isinstance(space, Dict):
        return {key: nest(part, part_of, (*path, key)) for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(nest(part, part_of, (*path, i)) for i, part in enumerate(space))
    return part_of(name_of(path))


def write_npz(path: Path, demonstrations: Demonstrations) -> None:
    """Write a new .npz file. Raises SaveFailed if it cannot be written."""
    tables: Tables = {}
    for kind, content in vars(demonstrations).items():
        parts = content if isinstance(content, dict) else {"": content}
        for name, table in parts.items():
            if table is not None:
                tables[f"{kind}.{name}" if name else kind] = table
    try:
        with atomic_write(path, is_new=True) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **tables)
    except OSError as error:
        raise SaveFailed(f"{path} cannot be written ({error.strerror or error})") from error


def check_new(name: str) -> str:
    """Return the name of a new .npz file, after making its folder. Raises ConfigError if it is
    there already, or if nothing can be written there."""
    new_file("--record=", name, (SUFFIX,))
    return name


def load_demonstrations(name: str) -> Demonstrations:
    """Return the demonstrations that --demonstrations names. Raises ConfigError if there are none,
    or if they are damaged."""
    try:
        return read_npz(Path(name))
    except (OSError, ValueError) as error:
        raise unusable(name, getattr(error, "strerror", None) or error) from error


def unusable(name: str, reason: object) -> ConfigError:
    """Return the error that says why demonstrations cannot be used."""
    return ConfigError(
        f"--demonstrations={name} cannot be used ({reason}): give what --record has written for "
        "this environment, or a file like it (docs/your-own.md)"
    )


def read_npz(path: Path) -> Demonstrations:
    """Read a .npz file, which is untrusted: nothing in it is executed, and sizes are
    checked before memory is taken. Raises OSError if it cannot be read, ValueError if it is damaged
    or does not hold demonstrations."""
    return assemble(read_tables(path))


def read_tables(path: Path) -> Tables:
    """Return the arrays of numbers in a .npz file, by name. Raises as read_npz."""
    most = physical_memory() // 4
    try:
        with (
            _InParts(open_regular(path, most).detach()) as file,
            zipfile.ZipFile(file) as archive,
        ):
            members = archive.infolist()
            if len({member.filename for member in members}) < len(members):
                raise ValueError("it has two entries of one name")
            size = path.stat().st_size
            for member in members:
                is_possible = member.compress_size <= size and member.compress_type in (
                    zipfile.ZIP_STORED,
                    zipfile.ZIP_DEFLATED,
                )
                if not is_possible or member.file_size > MAX_RATIO * member.compress_size:
                    raise ValueError(f"{member.filename} cannot have the size that it says")
            if sum(member.file_size for member in members) > most:
                raise ValueError("it would take more than a quarter of this machine's memory")
            return {
                member.filename.removesuffix(".npy"): _read_array(archive, member)
                for member in members
            }
    except (OSError, ValueError):
        raise
    except Exception as error:  # whatever zipfile, zlib and numpy raise for damaged content
        raise ValueError(f"it is damaged: {error}") from error


class _InParts(BufferedReader):
    """A file that returns at most MAX_READ bytes at once, whatever its content makes zipfile ask
    for."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(MAX_READ if size is None or size < 0 else min(size, MAX_READ))


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> ndarray:
    """Read an array of numbers. Raises ValueError if its header does not fit its size."""
    name = member.filename
    with archive.open(member) as file:
        versions = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        version = npy.read_magic(file)
        if version not in versions:
            raise ValueError(f"{name} is of an unknown version")
        shape, _, dtype = versions[version](file)
        if dtype.hasobject:
            raise ValueError(f"{name} holds pickled objects, which are never loaded")
        if dtype.kind not in "biuf":
            raise ValueError(f"{name} holds no numbers, but {dtype}")
        if min(shape, default=0) < 0 or prod(shape) * dtype.itemsize + file.tell() != (
            member.file_size
        ):
            raise ValueError(f"{name} does not have the size that it says")
    with archive.open(member) as file:
        return npy.read_array(file, allow_pickle=False)


def assemble(tables: Mapping[str, ndarray]) -> Demonstrations:
    """Return the demonstrations in tables by their names in a file, such as "actions.arm".

    Raises ValueError if one is missing, unknown, or does not fit the others."""
    found: dict[str, Tables] = {kind: {} for kind in KINDS}
    for name, table in tables.items():
        kind, _, part = name.partition(".")
        if kind not in KINDS:
            raise ValueError(f"it has {name}, which is none of {', '.join(KINDS)}")
        found[kind][part] = table
    for kind in NEEDED:
        if not found[kind]:
            raise ValueError(f"it has no {kind}")
    ends = []
    for kind in ("terminations", "truncations"):
        flags = found[kind].get("")
        if flags is None or flags.ndim != 1 or not np.isin(flags, (0, 1)).all():
            raise ValueError(f"its {kind} are not one 0 or 1 for each step")
        ends.append(flags.astype(np.bool_))
    terminations, truncations = ends
    num_steps = len(terminations)
    if not num_steps:
        raise ValueError("it is empty")
    if len(truncations) != num_steps or not (terminations[-1] or truncations[-1]):
        raise ValueError("its last step ends no episode, neither by termination nor by truncation")
    num_episodes = int((terminations | truncations).sum())
    seeds = found["seeds"].get("", np.full(num_episodes, -1))
    rewards = found["rewards"].get("")
    if rewards is not None and not (rewards.ndim == 1 and (np.abs(rewards) <= MAX_FLOAT32).all()):
        raise ValueError("its rewards are not one finite number for each step, as float32, too")
    num_rows = num_steps + num_episodes
    for kind, wanted in (
        ("observations", num_rows),
        ("action_masks", num_rows),
        ("actions", num_steps),
        ("rewards", num_steps),
        ("seeds", num_episodes),
    ):
        for table in found[kind].values():
            if not table.ndim or len(table) != wanted:
                raise ValueError(
                    f"its {kind} are {table.shape}, not {wanted} rows: there are {num_steps} steps "
                    f"in {num_episodes} episodes, each with an observation after its last step"
                )
    return Demonstrations(
        observations=found["observations"],
        actions=found["actions"],
        rewards=rewards,
        terminations=terminations,
        truncations=truncations,
        action_masks=found["action_masks"],
        seeds=seeds,
    )


def fit(
    demonstrations: Demonstrations, observation_space: Space[Any], action_space: Space[Any]
) -> Demonstrations:
    """Return demonstrations in the dtypes of an environment's spaces.

    Bounds of observations need not be kept, as in training. Raises ValueError if a part is missing,
    unknown, of another shape or not finite, or if an action is outside of its space."""
    observations = _fit_parts(
        "observations", demonstrations.observations, dict(observed_leaves(observation_space))
    )
    actions = _fit_parts("actions", demonstrations.actions, dict(leaves(action_space)))
    for path, leaf in leaves(action_space):
        check_inside(leaf, actions[name_of(path)], label_of("actions", path))
    return replace(demonstrations, observations=observations, actions=actions)


def check_inside(leaf: Space[Any], actions: ndarray, label: str) -> None:
    """Raise ValueError unless all actions (n, ...) are in a leaf of an action space."""
    if isinstance(leaf, Box):
        are_inside = bool(((actions >= leaf.low) & (actions <= leaf.high)).all())
    else:
        are_inside = True
        try:
            check_columns(leaf, action_columns(leaf, [actions]))
        except ValueError:
            are_inside = False
    if not are_inside:
        raise ValueError(f"its {label} are not all inside of {leaf}")


def _fit_parts(kind: str, tables: Tables, parts: Mapping[tuple[Any, ...], Any]) -> Tables:
    """Return a table for each part of a space. Raises ValueError as fit does."""
    if unknown := tables.keys() - {name_of(path) for path in parts}:
        raise ValueError(f"the environment has no {kind}.{min(unknown)}".rstrip("."))
    fitting = {}
    for path, leaf in parts.items():
        label = label_of(kind, path)
        table = tables.get(name_of(path))
        if table is None:
            raise ValueError(f"it has no {label}, of {leaf}")
        fitting[name_of(path)] = fit_part(table, leaf, label)
    return fitting


def fit_part(table: ndarray, leaf: Space[Any], label: str) -> ndarray:
    """Return a copy of a table (n, ...) in the dtype of a leaf, in which only precision may be
    lost. Raises ValueError for another shape, what is not finite, or no choice of the leaf."""
    if table.shape[1:] != leaf.shape:
        raise ValueError(f"its {label} are {table.shape[1:]}, not {leaf.shape} of {leaf}")
    if table.dtype.kind == "f" and not (np.abs(table) <= MAX_FLOAT32).all():
        raise ValueError(f"its {label} are not all finite")
    found = table.astype(leaf.dtype)
    if found.dtype.kind != "f" and not (found == table).all():
        raise ValueError(f"its {label} are not all {leaf.dtype}, as {leaf} has it")
    if not isinstance(leaf, Box):
        check_inside(leaf, found, label)
    return found
