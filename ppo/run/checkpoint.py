"""Checkpoints. One is a safetensors file of tensors whose metadata has one entry, "state": canonical JSON of all else
and of "sha256", the digest of that JSON without it and of every tensor's name, dtype, shape and bytes."""

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import safetensors.torch
from torch import Tensor

from ppo.config.config import ELSEWHERE, Config, run_folder
from ppo.errors import CheckpointError, ConfigError, NotSaved
from ppo.system.hardware import physical_memory

FORMAT = 4
NUM_KEPT = 3
LAST, BEST, TEMPORARY = "last.safetensors", "best.safetensors", ".tmp-"
FILE_NAME = re.compile(r"\d{12}\.safetensors")  # the step


def save(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Write a checkpoint, or leave the file as it was: path never names half of one, nor one that does not read back as
    it was. state: plain JSON. Raises OSError, and ValueError for numbers that are not finite."""
    tensors = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
    if wrong := [
        name
        for name, tensor in tensors.items()
        if tensor.is_floating_point() and not tensor.isfinite().all()
    ]:
        raise ValueError(f"{', '.join(wrong)} would be saved with numbers that are not finite")
    state = {"format": FORMAT, **state}
    sealed = {**state, "sha256": digest(tensors, _canonical(state))}
    content = safetensors.torch.save(tensors, {"state": _canonical(sealed)})
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(
        f"{TEMPORARY}{os.getpid()}-{path.name}"
    )  # in the same folder: to replace is atomic
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        load(temporary)
        temporary.replace(path)
    except CheckpointError as error:
        raise OSError(f"what was written does not read back: {error}") from error
    finally:
        with suppress(OSError):  # a read-only file system has said so already
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
        if path.stat().st_size > physical_memory() / 4:
            raise ValueError("it is larger than this machine can be asked to read")
        with safetensors.safe_open(path, "pt") as file:
            state = dict(json.loads(file.metadata()["state"]))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is no dict
        sealed = digest(
            tensors, _canonical({name: x for name, x in state.items() if name != "sha256"})
        )
    except (
        OSError,
        safetensors.SafetensorError,
        KeyError,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise CheckpointError(
            f"{path} is no readable checkpoint ({reason or error}): give another"
        ) from error
    if state.pop("sha256", None) != sealed:
        raise CheckpointError(f"{path} is damaged: its content is not what was saved; give another")
    if state.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} has format {state.get('format')}, this version reads {FORMAT}: give another"
        )
    return tensors, state


def by_part(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Tensors that are called part.name, by both."""
    parts: dict[str, dict[str, Tensor]] = {}
    for whole, tensor in tensors.items():
        part, _, name = whole.partition(".")
        parts.setdefault(part, {})[name] = tensor
    return parts


def saved_settings(run: Path, repeated: Mapping[str, Any]) -> dict[str, Any]:
    """The config of a run, by its newest whole checkpoint, and as to how it is watched by its config.json. Raises
    CheckpointError if there is none, or none that can be a config, or that wants to import what is not repeated."""
    path, _, state = load_newest(run / "checkpoints", lambda damage: None)
    config = settings(path, state, repeated)
    with suppress(OSError, ValueError, TypeError, KeyError, ConfigError):
        about = json.loads((run / "config.json").read_text())
        watched = {
            name: about[name] for name in ELSEWHERE if name not in ("name", "run_dir", "resume")
        }
        Config(**watched)
        config = {**config, **watched}
    try:
        Config(**config)
    except (ConfigError, TypeError) as error:
        raise CheckpointError(
            f"{path} has settings that this version does not take ({error}): give another"
        ) from error
    return config


def settings(path: Path, state: Mapping[str, Any], repeated: Mapping[str, Any]) -> dict[str, Any]:
    """The config that a checkpoint's state was made with. repeated: what the user has given, without which an import
    path is not trusted. Raises CheckpointError for one that is not, or if there is no config."""
    config = state.get("config")
    if not isinstance(config, dict):
        raise CheckpointError(f"{path} has no config: give another")
    for name in ("env_name", "model", "optimizer"):
        wanted = str(config.get(name))
        if ":" in wanted and not wanted.startswith("torch.optim:") and repeated.get(name) != wanted:
            raise CheckpointError(
                f"{path} would import {wanted}: if you trust it, repeat --{name}={wanted}"
            )
    return config


def newest_first(folder: Path) -> list[Path]:
    """The checkpoints in a folder, by the step in their names; nothing that is a link."""
    files = [
        path
        for path in folder.glob("*")
        if FILE_NAME.fullmatch(path.name) and not path.is_symlink()
    ]
    return sorted(files, reverse=True)


def load_newest(
    folder: Path, on_damage: Callable[[str], object]
) -> tuple[Path, dict[str, Tensor], dict[str, Any]]:
    """The newest checkpoint that is whole; on_damage is told of each that is not. Raises CheckpointError if there is
    none."""
    for path in newest_first(folder):
        try:
            return path, *load(path)
        except CheckpointError as error:
            on_damage(str(error).replace("give another", "the one before it is used"))
    raise CheckpointError(
        f"no checkpoint in {folder} can be read: give another run, or begin one without --resume"
    )


def find_checkpoint(name: str) -> Path:
    """What a command names: a checkpoint's file, or the newest whole one of a run, by its folder or its name in runs/.
    Raises ConfigError if there is no such thing, CheckpointError if no checkpoint of the run can be read."""
    if Path(name).is_file():
        return Path(name)
    folder = run_folder(name)
    if not folder:
        raise ConfigError(
            f"{name}: there is no such run or checkpoint; give a run's folder or a file in its checkpoints/"
        )
    return load_newest(
        folder / "checkpoints", lambda damage: print(f"warning: {damage}", file=sys.stderr)
    )[0]


class Checkpoints(AbstractContextManager):
    """Writes a run's checkpoints, one at a time, on a thread: <step>.safetensors, of which the last three and the best
    stay, and links last.safetensors and best.safetensors to them. Nothing is removed before the new one has been read
    back, and nothing that this run has not written. on_event(kind, message) is told why one could not be written."""

    def __init__(self, folder: Path, on_event: Callable[[str, str], None]) -> None:
        self.folder, self.on_event = folder, on_event
        self.written: list[Path] = []  # by this run, the oldest first
        self.failure: Exception | None = None
        self.thread: Thread | None = None
        with suppress(OSError):  # then nothing can be saved either, which will be said
            for leftover in folder.glob(f"{TEMPORARY}*"):
                leftover.unlink()

    def adopt(self, state: Mapping[str, Any]) -> None:
        """Count files as written by this run that were, up to a state which it goes on from."""
        for path in reversed(newest_first(self.folder)):
            with suppress(CheckpointError):
                found = load(path)[1]
                if found["config"] == state["config"] and found["step"] <= state["step"]:
                    self.written.append(path)

    def save(
        self, tensors: Mapping[str, Tensor], state: Mapping[str, Any], is_best: bool = False
    ) -> None:
        """Begin to write what is the run's state at state["step"]; what is given must not change any more."""
        self.wait()
        self.thread = Thread(target=self._write, args=(tensors, state, is_best), daemon=True)
        self.thread.start()

    def wait(self) -> None:
        """Return when nothing is being written."""
        if self.thread:
            self.thread.join()

    def finish(self) -> None:
        """Wait for the last one. Raises NotSaved if it could not be written."""
        self.wait()
        if self.failure:
            instead = f"the newest is {self.written[-1]}" if self.written else "there is none"
            raise NotSaved(
                f"the last checkpoint cannot be written to {self.folder} ({self.failure}): {instead}"
            )

    def __exit__(self, *exception: object) -> None:
        if not isinstance(exception[1], KeyboardInterrupt):
            self.wait()

    def _write(
        self, tensors: Mapping[str, Tensor], state: Mapping[str, Any], is_best: bool
    ) -> None:
        path = self.folder / f"{state['step']:012d}.safetensors"
        try:
            if path not in self.written:
                save(path, tensors, state)
                self.written.append(path)
            for name in (LAST, BEST) if is_best else (LAST,):
                link = self.folder / f"{TEMPORARY}{os.getpid()}-{name}"
                link.symlink_to(path.name)
                link.replace(self.folder / name)
            best = os.readlink(self.folder / BEST) if (self.folder / BEST).is_symlink() else None
            for old in [old for old in self.written[:-NUM_KEPT] if old.name != best]:
                old.unlink(missing_ok=True)
                self.written.remove(old)
            self.failure = None
        except (OSError, ValueError) as error:
            self.failure = error
            problem = f"the checkpoint of step {state['step']} cannot be written to {self.folder} ({error})"
            self.on_event(
                "checkpoint_failed", f"{problem}; older ones are intact, and it is tried again"
            )


def _canonical(state: Mapping[str, Any]) -> str:
    return json.dumps(state, sort_keys=True, allow_nan=False)
