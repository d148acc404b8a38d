"""Checkpoints: safetensors files with JSON metadata, each written completely or not at all."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from safetensors import safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from ppo.errors import CheckpointError, reason

FORMAT = 3
LAST, BEST = "last.safetensors", "best.safetensors"
NUM_KEPT = 3


def write(path: Path, content: bytes) -> None:
    """Write a file under a temporary name, and rename it, so that a file of its name is whole
    whenever the process or the machine stops."""
    temporary = path.with_name(f".tmp-{path.name}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def copied(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a state that the run goes on to change: tensors, and JSON values by name. A
    tuple of arrays, which do not change, is copied when it is saved."""
    found: dict[str, Any] = {}
    for name, value in state.items():
        if isinstance(value, Tensor):
            found[name] = value.detach().cpu().clone()
        elif isinstance(value, (ndarray, np.generic)):
            found[name] = torch.from_numpy(np.array(value))
        elif isinstance(value, tuple) and all(isinstance(x, ndarray) for x in value):
            found[name] = value
        else:
            found[name] = json.loads(json.dumps(value))
    return found


def save(path: Path, state: Mapping[str, Any]) -> None:
    """Save a state of tensors and JSON values by name. Raises OSError."""
    tensors = {name: x.contiguous() for name, x in state.items() if isinstance(x, Tensor)}
    for name, chunks in state.items():
        if isinstance(chunks, tuple):
            tensors[name] = torch.from_numpy(np.concatenate(chunks or [np.zeros((0, 1))]))
    values = {name: x for name, x in state.items() if name not in tensors}
    metadata = {"format": str(FORMAT), "values": json.dumps(values)}
    write(path, to_bytes(tensors, metadata))


def load(path: Path) -> dict[str, Any]:
    """Read a state: tensors and JSON values by name. Raises CheckpointError."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if metadata.get("format") != str(FORMAT):
            raise ValueError("it is no checkpoint of this version")
        return {**json.loads(metadata["values"]), **tensors}
    except Exception as error:  # safetensors has an exception of its own
        raise CheckpointError(f"{path} cannot be read ({reason(error)})") from error


def arrays(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state with numpy arrays in place of tensors."""
    return {name: x.numpy() if isinstance(x, Tensor) else x for name, x in state.items()}


def select(prefix: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a state whose names begin with a prefix and a dot, without these."""
    size = len(prefix) + 1
    return {name[size:]: x for name, x in state.items() if name.startswith(f"{prefix}.")}


class Checkpoints:
    """The checkpoints in a folder: the last three, and the best one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob(".tmp-*"):
            left.unlink()

    @property
    def last(self) -> Path:
        """The path of the last checkpoint."""
        return self.folder / LAST

    def save(self, state: Mapping[str, Any], *, is_best: bool) -> None:
        """Save a state, and remove the oldest. Raises OSError, with older files intact."""
        path = self.folder / f"{state['step']:012}.safetensors"
        save(path, state)
        self._name(path, LAST)
        if is_best:
            self._name(path, BEST)
        for old in sorted(self.folder.glob("[0-9]*.safetensors"))[:-NUM_KEPT]:
            old.unlink()

    def _name(self, path: Path, name: str) -> None:
        """Give a file another name, or, where the system has no hard links, copy it."""
        temporary = self.folder / f".tmp-{name}"
        temporary.unlink(missing_ok=True)
        try:
            os.link(path, temporary)
        except OSError:
            shutil.copyfile(path, temporary)
        os.replace(temporary, self.folder / name)


def find(path: str | Path) -> Path:
    """Return the checkpoint that a run's folder or name stands for, the best one if there is one,
    or the file itself. Raises CheckpointError."""
    for place in (Path(path), Path("runs") / path):
        if place.is_file():
            return place
        for name in (BEST, LAST):
            if (place / "checkpoints" / name).exists():
                return place / "checkpoints" / name
    raise CheckpointError(f"{path} is neither a run with a checkpoint nor a checkpoint")
