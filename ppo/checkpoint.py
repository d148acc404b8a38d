"""A checkpoint: one safetensors file of tensors whose metadata has one entry, "state": canonical JSON of all else and
of "sha256", the digest of that JSON without it and of every tensor's name, dtype, shape and bytes."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

FORMAT = 2


class CheckpointError(ValueError):
    """A checkpoint cannot be used; the message says why."""

    exit_code = 3


def save(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Write a checkpoint, or leave the file as it was: path never names half of one. state: plain JSON."""
    tensors = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
    state = {"format": FORMAT, **state}
    sealed = {**state, "sha256": digest(tensors, json.dumps(state, sort_keys=True))}
    content = safetensors.torch.save(tensors, {"state": json.dumps(sealed, sort_keys=True)})
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")  # in the same folder, so that replacing is atomic
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)  # the new name, too, must outlast a power failure
    os.close(folder)


def digest(tensors: Mapping[str, Tensor], state: str) -> str:
    """The SHA-256 of a checkpoint's content, in hexadecimal."""
    result = hashlib.sha256(state.encode())
    for name, tensor in sorted(tensors.items()):
        result.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        result.update(tensor.numpy().tobytes())
    return result.hexdigest()


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the state of a checkpoint. Raises CheckpointError if it cannot be read, or is not as it was."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            state = dict(json.loads(file.metadata()["state"]))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is no dict
    except (OSError, safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is no readable checkpoint ({error}): give another") from error
    if state.pop("sha256", None) != digest(tensors, json.dumps(state, sort_keys=True)):
        raise CheckpointError(f"{path} is damaged: its content is not what was saved; give another")
    if state["format"] != FORMAT:
        raise CheckpointError(f"{path} has format {state['format']}, this version reads {FORMAT}: give another")
    return tensors, state
