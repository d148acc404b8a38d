"""The folder of a run: created once, used by one process at a time, never reused by another run."""

import fcntl
import json
import os
import platform
import socket
import subprocess
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from datetime import datetime, timezone
from functools import cache
from importlib import metadata
from io import FileIO
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import Any

from ppo.config.config import Config
from ppo.config.flags import Settings, pasted
from ppo.errors import ConfigError, RunInUse
from ppo.extensions import NOTHING, names_of
from ppo.run.reader import METRICS, SUMMARY
from ppo.system.files import (
    TEMPORARY,
    AppendedFile,
    folder_name,
    lock_file,
    open_regular,
    read_bytes,
    read_json,
    remove_leftovers,
    write_json,
)
from ppo.system.output import shorten, show
from ppo.system.state_dict import State

EVENTS = "events.jsonl"
# A folder of such a name would be noticed after the training, too late.
WRITTEN_LATE = (SUMMARY, "checkpoints/last.safetensors", "checkpoints/best.safetensors")
PACKAGES = ("ale-py", "box2d", "box2d-py", "gymnasium", "numpy", "torch")
# What --resume=auto accepts in the folder of a run that has no checkpoint yet.
FILES_BEFORE_CHECKPOINT = {"lock", "config.json", EVENTS, METRICS, "checkpoints"}


def fault_kinds() -> list[str]:
    """Return the kinds of faults that are counted: of environments, extensions, and the trainer."""
    of_trainer = ("step_skipped", "evaluation_failed", "checkpoint_failed")
    return ["worker_lost", "episodes_lost", *names_of("faults"), *of_trainer]


class RunFolder(AbstractContextManager["RunFolder"]):
    """Own a run's folder: lock it until the context is left, and record events in it.

    The folder of a new run is created, with a config.json (see describe_run, also for auto; about:
    further entries) and a run id.
    faults: the count of each fault, which event increases. Raises ConfigError if a new run's folder
    is not empty, or if it cannot be written to or its file system has no locks, RunInUse if another
    process has locked it.
    """

    def __init__(
        self,
        config: Config,
        faults: dict[str, int],
        auto: Settings | None = None,
        about: Mapping[str, Any] = NOTHING,
    ) -> None:
        default = f"{config.env_name}-s{config.seed}-{datetime.now():%Y%m%d-%H%M%S-%f}"
        path = config.run_dir or f"runs/{folder_name(config.name or default)}"
        self.path = Path(str(config.resume) if config.is_resumed else path).absolute()
        choose = "choose another by --run_dir or --name"
        self.faults = faults
        self.iteration = 0
        self.guard = Lock()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            files = {name for name in os.listdir(self.path) if not name.startswith(TEMPORARY)}
            if config.resume == "auto":
                files -= FILES_BEFORE_CHECKPOINT | names_of("loggers").keys()
                files = {name for name in files if not name.startswith("events.out.")}
            if files and not config.is_resumed:
                if (self.path / "lock").exists():
                    self._lock().close()
                if "checkpoints" in files:
                    choose += f", or go on with its run by {pasted(resume=self.path)}"
                raise ConfigError(
                    f"the folder {self.path} is not empty, and no run is overwritten: {choose}"
                )
            for name in WRITTEN_LATE:
                if (self.path / name).is_dir():
                    raise IsADirectoryError(f"{name} is a folder")
            self.lock = self._lock()
            for name in ("config.json", METRICS, SUMMARY):  # which only this process writes
                remove_leftovers(self.path, name)
            self.lock.truncate(0)
            self.lock.write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
            if not config.is_resumed:
                described = {**describe_run(config, auto), "run_id": token_hex(4), **about}
                write_json(self.path / "config.json", described)
            self.events = AppendedFile(self.path / EVENTS)
        except OSError as error:
            raise ConfigError(
                f"the folder {self.path} cannot be written to ({error.strerror or error}): {choose}"
            ) from error
        known = read_json(self.path / "config.json").get("run_id")
        self.run_id = known if isinstance(known, str) and known.isalnum() else token_hex(4)

    def event(self, kind: str, message: str = "", count: int = 1, **details: Any) -> None:
        """Record an event in events.jsonl, and show its message as a warning; from any thread.

        kind: if it is one of faults, count is added to it. details: further entries of the line,
        as JSON can hold them.
        """
        if kind in self.faults:
            self.faults[kind] += count
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        event: State = {"time": now, "iteration": self.iteration, "kind": kind}
        for name, value in {"message": message, **details}.items():
            event[name] = shorten(value) if isinstance(value, str) else value
        with self.guard:
            self.events.append(json.dumps(event) + "\n")
        if message:
            show(f"warning: {message}")

    def __exit__(self, *exception: object) -> None:
        self.events.close()
        self.lock.close()

    def _lock(self) -> FileIO:
        """Lock the folder, and return the open lock file: closing it, or the end of this process,
        unlocks the folder. Raises RunInUse if another process has locked it."""
        try:
            return lock_file(self.path / "lock")
        except BlockingIOError as error:
            content = read_bytes(self.path / "lock").decode(errors="replace")
            owner = content.strip() or "another process"
            raise RunInUse(
                f"the folder {self.path} is in use by {owner}: wait for it, or choose another by "
                "--run_dir"
            ) from error


def is_running(folder: Path) -> bool:
    """Return whether a process has locked a run's folder."""
    try:
        with open_regular(folder / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)  # otherwise there is no lock file
    return False


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that affect a run's exact
    results."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def describe_run(config: Config, auto: Settings | None) -> State:
    """Return what config.json and each resume say of a run: resolved settings, what "auto" stands
    for (see RunSettings), versions, and the trainer's git commit."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    commit = ""
    with suppress(OSError):  # there may be no git
        commit = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return {
        **config.__getstate__(),
        "auto": auto,
        "versions": versions(),
        "git_commit": commit or None,  # None outside a git checkout
    }
