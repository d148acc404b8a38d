"""The folder of a run: made once, used by one process at a time, never reused by another run."""

import fcntl
import importlib.metadata
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import uuid
from contextlib import AbstractContextManager, suppress
from datetime import datetime, timezone
from pathlib import Path
from threading import Lock
from typing import Any

from ppo.config.config import Config
from ppo.errors import ConfigError, RunInUse
from ppo.run.highlights import EPISODES
from ppo.system.files import AppendedFile, folder_name, write_json

PACKAGES = {"torch", "gymnasium", "numpy", "box2d", "box2d-py", "ale-py"}
BEGUN = {
    "lock",
    "config.json",
    "events.jsonl",
    EPISODES,
    "checkpoints",
}  # what a run has that has saved nothing yet
FAULTS = (
    "worker_lost",
    "observation_outside",
    "step_skipped",
    "evaluation_failed",
    "checkpoint_failed",
    "log_dropped",
)


class RunFolder(AbstractContextManager):
    """A run's folder, locked until its context is left.

    A new run's is made, with config.json: every resolved value, and what the run runs on. Raises ConfigError if it
    holds anything already, or cannot be made; RunInUse if another process has it. faults: how often each has happened,
    counted here."""

    def __init__(self, config: Config, faults: dict[str, int]) -> None:
        default = f"{config.env_name}-s{config.seed}-{datetime.now():%Y%m%d-%H%M%S-%f}"
        name = folder_name(config.name or default)
        self.is_resumed = config.resume not in (None, "auto")
        self.path = Path(
            str(config.resume) if self.is_resumed else config.run_dir or f"runs/{name}"
        )
        self.faults, self.iteration, self.guard = faults, 0, Lock()
        choose = (
            f"choose another by --{'name' if config.name and not config.run_dir else 'run_dir'}"
        )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            kept = {path.name for path in self.path.iterdir()} - (
                BEGUN if config.resume == "auto" else set()
            )
            is_used = bool(kept) and not self.is_resumed
            self.lock = self._lock(only_look=is_used)
            if is_used:
                raise ConfigError(
                    f"the folder {self.path} is not empty, and no run is overwritten: {choose}"
                )
            about = self.path / "config.json"
            if not self.is_resumed:
                installed = {
                    package.name.lower(): package.version
                    for package in importlib.metadata.distributions()
                }
                versions = {name: installed[name] for name in sorted(PACKAGES & installed.keys())}
                machine = {
                    "versions": {"python": platform.python_version(), **versions},
                    "git_commit": _git_commit(),
                }
                launch = {
                    "launch": os.environ.get("TORCHELASTIC_RUN_ID")
                }  # by which torchrun knows it
                write_json(
                    about,
                    {**config.__getstate__(), **machine, "run_id": uuid.uuid4().hex[:8], **launch},
                )
            self.events, self.episodes = (
                AppendedFile(self.path / name) for name in ("events.jsonl", EPISODES)
            )
        except OSError as error:
            raise ConfigError(
                f"the folder {self.path} cannot be written to ({error.strerror}): {choose}"
            ) from error
        try:
            self.run_id = str(json.loads(about.read_text())["run_id"])
        except (OSError, ValueError, KeyError, TypeError):
            self.run_id = uuid.uuid4().hex[:8]

    def event(self, kind: str, message: str = "", count: int = 1, **details: Any) -> None:
        """A line in events.jsonl, and a message, if there is one, to the user; from any thread."""
        if kind in self.faults:
            self.faults[kind] += count
        about = {
            "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            "iteration": self.iteration,
        }
        with self.guard:
            self.events.append(
                json.dumps({**about, "kind": kind, "message": message, **details}) + "\n"
            )
        if message:
            with suppress(OSError):  # a log that goes to the full disk, perhaps
                print(f"warning: {message}", file=sys.stderr, flush=True)

    def __exit__(self, *exception: object) -> None:
        self.events.close()
        self.episodes.close()
        os.close(self.lock)

    def _lock(self, only_look: bool) -> int:
        """A descriptor whose closing, be it by this process's death, frees the folder. only_look: at a lock, if there
        is one. Raises RunInUse if another process has it."""
        path = self.path / "lock"
        if only_look and not path.exists():
            return -1
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.read(descriptor, 1000).decode(errors="replace").strip() or "another process"
            os.close(descriptor)
            fix = "wait for it, or choose another by --run_dir"
            raise RunInUse(f"the folder {self.path} is in use by {owner}: {fix}") from error
        if only_look:
            os.close(descriptor)
            return -1
        os.truncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        return descriptor


def _git_commit() -> str | None:
    """The commit of the trainer's own source; None outside a git checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    installed = shutil.which("git") is not None
    return (
        subprocess.run(command, capture_output=True, text=True).stdout.strip() or None
        if installed
        else None
    )
