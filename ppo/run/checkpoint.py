"""Checkpoints: files that hold a state dict.

A checkpoint is a safetensors file of the state's tensors. Its metadata has one entry, "state":
JSON of all other values, of "format", its version, and of "sha256", the digest of the rest of this
JSON, with its keys sorted, and of every tensor's name, dtype, shape and bytes. No pickle is written
or read.
"""

import errno
import fnmatch
import hashlib
import json
import math
import os
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ppo.envs.values import MAX_FLOAT32, describe_value
from ppo.errors import CheckpointError, ConfigError
from ppo.run.reader import FILE_NAMES, Schema, misfit, run_folder
from ppo.system.files import atomic_write, open_regular, parse_json
from ppo.system.hardware import physical_memory
from ppo.system.output import show
from ppo.system.state_dict import State

FORMAT = 4
LAST = "last.safetensors"  # links to the newest of a run
MAX_TENSORS = 10_000
# Values of the trainer, by name, with the types of their parts.
VALUES: Schema = {
    "iteration": int,
    "step": int,
    "num_skipped": int,
    "learning_rate": float,
    "faults": {str: int},
    "episodes": int,
    "episodes.counts": {str: [int]},
    "episodes.waiting": [int],
    "episodes.metrics": {str: [float]},
    "env_attributes": {},
    "acting.env_attributes": {},
    "made_with": {},
}
GREATEST = {int: 2**53 - 1, bool: 1, float: 1e30}  # of VALUES: counts, and a learning rate
LARGEST = {"normalize_observation.mean": MAX_FLOAT32}  # absolute values in tensors of the trainer
LARGEST_FLOAT64 = 1e100  # in its others of float64, so that squares and sums are finite
LIMITS = {  # of tensors whose numbers are not negative
    "normalize_observation.variance": math.inf,
    "normalize_observation.count": 2.0**53,
    "normalize_reward.variance": math.inf,
    "normalize_reward.count": 2.0**53,
    "episodes.begun": 2.0**53,
}


def copy_state(state: State) -> State:
    """Return a copy of a state, with its tensors and arrays as contiguous tensors on the CPU.
    Values of which there can be no such copy stay as they are; unsaveable names them."""
    copies = {}
    for name, value in state.items():
        with suppress(Exception):  # callbacks and models may return any state
            if isinstance(value, Tensor):
                value = value.detach().to("cpu", copy=True).contiguous()
            elif isinstance(value, (np.ndarray, np.generic)):
                native = value.dtype.newbyteorder("=")
                value = torch.from_numpy(np.array(value, native, order="C"))  # a copy
            elif isinstance(value, (dict, list, tuple)):
                value = deepcopy(value)
        copies[name] = value
    return copies


def unsaveable(state: State) -> str:
    """Describe the first value that no checkpoint can hold, "" if there is none. state: as
    copy_state returns it."""
    num_tensors = 0
    for name, value in state.items():
        try:
            if isinstance(value, Tensor):
                num_tensors += 1
                safetensors.torch.save({name: value.flatten()[:0]})  # whatever its content is
            else:
                json.dumps(value, sort_keys=True)
        except Exception as error:  # of the value's own code, too
            reason = "" if hasattr(value, "dtype") else f" ({error})"
            return f"{name} is {describe_value(value)}, which no checkpoint can hold{reason}"
    if num_tensors > MAX_TENSORS:
        return f"it has {num_tensors} tensors, more than the {MAX_TENSORS} of a checkpoint"
    return ""


def save(path: Path, state: State) -> None:
    """Write a checkpoint atomically, after reading it back. state: as copy_state returns it.

    Raises OSError if it cannot be written or does not read back, ValueError for something
    impossible, TypeError for a value that is unsaveable.
    """
    if problem := unsaveable(state):
        raise TypeError(problem)
    tensors = {name: x for name, x in state.items() if isinstance(x, Tensor)}
    values = {name: x for name, x in state.items() if name not in tensors}
    for name, value in state.items():
        if problem := impossible(name, value):
            raise ValueError(f"{name} would be saved although it {problem}")
    values["format"] = FORMAT
    values["sha256"] = digest({**values, **tensors})
    ordered = dict(sorted(values.items()))  # a dict in it as it is: environments read env_kwargs
    content = safetensors.torch.save(tensors, {"state": json.dumps(ordered)})
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)
        _sync(temporary)
        try:
            load(temporary)
        except CheckpointError as error:
            raise OSError(f"what was written does not read back: {error}") from error
    _sync(path.parent)  # the new name must survive a power failure, too


def load(path: Path) -> State:
    """Return a checkpoint's state: CPU tensors and JSON values, by name.

    Raises CheckpointError if it is unreadable, damaged, of another format, larger than a quarter of
    the machine's memory, or has more than 10,000 tensors, or something impossible.
    """
    return _possible(path, _read(path))


def impossible(name: str, value: Any) -> str:
    """Say why a value of the trainer cannot be part of a state, such as NaN in a tensor or a
    negative count; "" if it can. Callbacks may have any."""
    if name in VALUES:
        if misfit(value, VALUES[name]):
            return "is of another type"
        try:
            parse_json(json.dumps(value))
        except (ValueError, RecursionError) as error:
            return f"cannot be used ({error})"
        numbers = value.values() if name == "faults" else [value]
        if any(isinstance(x, (int, float)) and not 0 <= x <= GREATEST[type(x)] for x in numbers):
            return "has a number that is negative or too large"
    elif isinstance(value, Tensor) and not name.startswith("callbacks."):
        try:
            if not value.isfinite().all():
                return "has numbers that are not finite"
            is_ours = value.dtype == torch.float64 and not name.startswith("model.")
            if is_ours and (value.abs() > LARGEST.get(name, LARGEST_FLOAT64)).any():
                return "has numbers that are too large"
            if name in LIMITS and not ((value >= 0) & (value < LIMITS[name])).all():
                return "has numbers that are negative or too large"
        except NotImplementedError:  # with which nothing can be computed
            return f"has numbers of {value.dtype}"
    return ""


def _possible(path: Path, state: State) -> State:
    """Return a checkpoint's state. Raises CheckpointError for an impossible one, which nobody has
    saved: that is no damage, for which an earlier checkpoint would make up."""
    for name, value in state.items():
        if problem := impossible(name, value):
            raise CheckpointError(f"cannot use checkpoint {path}: {name} {problem}; give another")
    return state


def _read(path: Path) -> State:
    """Return a checkpoint's state, whatever its numbers are. Raises as load does."""
    try:
        open_regular(path, physical_memory() // 4).close()
        with safe_open(path, "pt") as file:
            names = file.keys()
            if len(names) > MAX_TENSORS:
                raise ValueError(f"it has {len(names)} tensors")
            values = dict(json.loads(file.metadata()["state"]))
            tensors = {name: file.get_tensor(name) for name in names}
        if values.pop("sha256", None) != digest({**values, **tensors}):
            raise ValueError("it is damaged: its content is not what was saved")
        if values.pop("format", None) != FORMAT:
            raise ValueError(f"this version reads format {FORMAT} only")
    except (OSError, SafetensorError, LookupError, TypeError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(f"cannot read checkpoint {path}: {reason}; give another") from error
    return {**values, **tensors}


def digest(state: State) -> str:
    """Return the SHA-256 of a checkpoint's content, in hexadecimal: of its values as JSON, in which
    NaN and Infinity are read back, too, and of its tensors."""
    tensors = {name: x for name, x in state.items() if isinstance(x, Tensor)}
    values = {name: x for name, x in state.items() if name not in tensors}
    result = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        result.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        content = tensor.reshape(-1).view(torch.uint8)  # numpy lacks some of torch's dtypes
        result.update(content.numpy().tobytes())
    return result.hexdigest()


def describe_mismatch(state: State, wanted: State, any_length: tuple[str, ...] = ()) -> str:
    """Describe up to three differences between a state and the wanted one; return "" for none.

    A difference is a model parameter that is not in wanted, or an entry of wanted that the state
    lacks, or has with another dtype or shape, or as another kind of JSON; None stands for any kind.
    any_length: how the names of tensors begin that may have any number of rows.
    """
    problems = [
        f"{name} is unexpected"
        for name in sorted(state.keys() - wanted.keys())
        if name.startswith("model.")
    ]
    for name, value in sorted(wanted.items()):
        found = state.get(name)
        if unlike := describe_kinds(state, {name: value}):
            problems += unlike
        elif isinstance(found, Tensor):
            here = torch.as_tensor(value)
            shape = tuple(here.shape)
            if name.startswith(any_length) and found.ndim:
                shape = (len(found), *shape[1:])
            if (found.dtype, tuple(found.shape)) != (here.dtype, shape):
                problems.append(
                    f"{name} is {found.dtype} {tuple(found.shape)}, here {here.dtype} {shape}"
                )
    return "; ".join(problems[:3])


def describe_kinds(state: State, wanted: State) -> list[str]:
    """Describe each entry of a wanted state that another one lacks or has as another kind of value:
    a number, a text, a list, an object or a tensor. None in the wanted one stands for any kind."""
    problems = []
    for name, value in sorted(wanted.items()):
        kind, here = kind_of(state.get(name)), kind_of(value)
        if name not in state:
            problems.append(f"{name} is missing")
        elif value is not None and kind != here:
            problems.append(f"{name} is {kind}, here {here}")
    return problems


def kind_of(value: Any) -> str:
    """Return what kind of value a state has, in words."""
    if hasattr(value, "dtype"):
        return "a tensor"
    if isinstance(value, (int, float)):
        return "a number"
    kinds = {str: "a text", list: "a list", tuple: "a list", dict: "an object"}
    return next((kind for base, kind in kinds.items() if isinstance(value, base)), "null")


def newest_first(folder: Path) -> list[Path]:
    """Return the checkpoint files in a folder, the latest step first, without links; none if there
    is no folder. Raises another OSError if it cannot be looked into."""
    with suppress(FileNotFoundError, NotADirectoryError):
        names = fnmatch.filter(os.listdir(folder), FILE_NAMES)
        return sorted((folder / x for x in names if not (folder / x).is_symlink()), reverse=True)
    return []


def load_newest(folder: Path, on_damage: Callable[[str], object]) -> tuple[Path, State]:
    """Return the path and state of the newest intact checkpoint in a folder.

    on_damage receives a message for each newer one that is damaged. Raises CheckpointError if none
    is intact, if one cannot be opened, which may be intact, and as load does for numbers.
    """
    for path in newest_first(folder):
        _check_opens(path)
        try:
            state = _read(path)
        except CheckpointError as error:
            on_damage(str(error).replace("give another", "the one before it is used"))
        else:
            return path, _possible(path, state)
    raise CheckpointError(
        f"no checkpoint in {folder} can be read: give another run, or begin one without --resume"
    )


def _check_opens(path: Path) -> None:
    """Raise CheckpointError if the system does not open a file, which may be intact."""
    try:
        open_regular(path).close()
    except OSError as error:
        if error.errno not in (None, errno.ENOENT):
            raise CheckpointError(
                f"cannot open checkpoint {path} ({error.strerror}), which may be intact: make it "
                "accessible, or move it away"
            ) from error


def find_checkpoint(name: str) -> Path:
    """Return the path of a checkpoint: a file, or a run's newest intact one.

    name: the file, the run's folder, or the run's name in runs/. Raises ConfigError if there is no
    such run or file, CheckpointError if the run has no intact checkpoint.
    """
    if Path(name).is_file():
        return Path(name)
    folder = run_folder(name)
    if not folder.is_dir():
        raise ConfigError(
            f"{name}: there is no such run or checkpoint; "
            "give a run's folder or a file in its checkpoints/"
        )
    return load_newest(folder / "checkpoints", lambda damage: show(f"warning: {damage}"))[0]


def _sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
