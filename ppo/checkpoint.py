"""Checkpoints: safetensors files with JSON metadata, each written completely or not at all."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray
from safetensors import safe_open
from safetensors.numpy import save as to_bytes

from ppo.errors import CheckpointError, reason

FORMAT = "3"
LAST = "last.safetensors"
BEST = "best.safetensors"
NUM_KEPT = 3
TEMPORARY = ".tmp-"

State = dict[str, Any]  # by name: arrays, tuples of arrays (chunks of one), and JSON values


def write(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all, wherever the process stops. Raises OSError."""
    temporary = path.with_name(TEMPORARY + path.name)
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def remove_temporary(folder: Path) -> None:
    """Remove what a killed process has left. Raises OSError."""
    for path in folder.glob(f"{TEMPORARY}*"):
        path.unlink()


def copied(state: State) -> State:
    """Copy a state, tensors as arrays. Raises TypeError for values that are not JSON."""
    found = {**state}
    for name, value in state.items():
        if hasattr(value, "dtype"):
            array = value.numpy(force=True) if hasattr(value, "numpy") else value  # a tensor
            found[name] = np.array(array)
            if found[name].dtype.kind not in "biuf":
                raise TypeError(f"{name} has the type {array.dtype}")
        elif not (isinstance(value, tuple) and all(isinstance(x, ndarray) for x in value)):
            found[name] = json.loads(json.dumps(value))  # chunks are not changed: no copy
    return found


def save(path: Path, state: State) -> None:
    """Save a copied state. Raises OSError."""
    arrays = {name: x for name, x in state.items() if isinstance(x, ndarray)}
    for name, chunks in state.items():
        if isinstance(chunks, tuple):
            arrays[name] = np.concatenate(chunks or [np.zeros((0, 1))])
    values = {name: x for name, x in state.items() if name not in arrays}
    write(path, to_bytes(arrays, {"format": FORMAT, "values": json.dumps(values)}))


def load(path: Path) -> State:
    """Read a state. Raises CheckpointError."""
    try:
        with safe_open(path, "np") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if metadata.get("format") != FORMAT:
            raise ValueError("it is not a checkpoint of this version")
        return {**json.loads(metadata["values"]), **arrays}
    except Exception as error:  # safetensors has an exception of its own
        raise CheckpointError(f"{path} cannot be read ({reason(error)})") from error


def select(prefix: str, state: State) -> State:
    """Return the entries whose names begin with a prefix and a dot, without these."""
    start = f"{prefix}."
    return {name.removeprefix(start): x for name, x in state.items() if name.startswith(start)}


def find(path: str | Path) -> Path:
    """Return a file, or a run's best checkpoint, or else its last. Raises CheckpointError."""
    for place in Path(path), Path("runs", path):
        folder = place / "checkpoints"
        for file in place, folder / BEST, folder / LAST:
            if file.is_file():
                return file
    raise CheckpointError(f"{path} is no file, and no folder or name of one run with a checkpoint")


def save_next(folder: Path, state: State, is_best: bool) -> None:
    """Save a state beside the last ones, remove the oldest of them. Raises OSError."""
    path = folder / f"{state['step']:012}.safetensors"
    save(path, state)
    content = path.read_bytes()
    for name in (BEST, LAST) if is_best else (LAST,):
        write(folder / name, content)
    others = {*folder.glob("[0-9]*.safetensors")} - {path}
    for old in sorted(others)[: 1 - NUM_KEPT]:
        old.unlink()
