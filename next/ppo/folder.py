"""The folder of a run: made once, used by one process at a time, never reused by another run."""

import fcntl
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from ppo.checkpoint import BEST, LAST, write
from ppo.config import Config, name_of
from ppo.errors import ConfigError, RunInUse

# What may be in the folder of a run that --resume=auto begins, since it has no checkpoint yet.
BEFORE_CHECKPOINT = {"lock", "config.json", "metrics.csv", "notes.txt", "checkpoints"}


class RunFolder:
    """Own a run's folder until the context is left. is_resumed: whether it has a checkpoint that
    the run goes on from.

    Raises ConfigError if a new run's folder is not empty or cannot be made, RunInUse if another
    process trains there."""

    def __init__(self, config: Config) -> None:
        self.is_resumed = False
        if config.resume not in (None, "auto"):
            self.path = existing_run(config.resume)
            self.is_resumed = True
        else:
            self.path = self._new(config)
        self.shown = self.path  # as it was given
        self.path = self.path.absolute()  # an environment may change the working folder
        try:
            self.lock = self._lock()
        except OSError as error:
            raise ConfigError(
                f"the folder {self.path} cannot be used ({error.strerror or error}): choose "
                "another by --run_dir"
            ) from error
        self.is_resumed |= config.resume == "auto" and (self.path / "checkpoints" / LAST).exists()
        kept = BEFORE_CHECKPOINT if config.resume == "auto" else {"lock"}
        left = {x.name for x in self.path.iterdir() if not x.name.startswith(".")} - kept
        if left and not self.is_resumed:
            self.close()
            raise ConfigError(
                f"the folder {self.path} is not empty, and no run is overwritten: choose another "
                f"by --run_dir or --name, or go on with --resume={self.path}"
            )

    def _new(self, config: Config) -> Path:
        """Return the folder of a new run, which is made if it has no name."""
        if config.run_dir or config.name:
            return Path(config.run_dir or f"runs/{config.name}")
        if config.resume == "auto":
            raise ConfigError("--resume=auto needs --run_dir or --name, which tell what to resume")
        named = config.env_name if isinstance(config.env_name, str) else name_of(config.env_name)
        name = named.rpartition(":")[2].rpartition("/")[2].partition("(")[0] or "run"
        number = 1
        while True:
            try:
                path = Path("runs", f"{name}-{number}")
                path.mkdir(parents=True)
                return path
            except FileExistsError:
                number += 1
            except OSError as error:
                raise ConfigError(
                    f"the folder runs/ cannot be used ({error.strerror}): give --run_dir"
                ) from error

    def _lock(self) -> TextIO:
        self.path.mkdir(parents=True, exist_ok=True)
        for name in ("metrics.csv", "summary.json"):  # which are written late
            if (self.path / name).is_dir():
                raise IsADirectoryError(0, f"{name} is a folder")
        for left in self.path.glob(".tmp-*"):
            left.unlink()
        file = (self.path / "lock").open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise RunInUse(
                f"another process trains in {self.path}: wait for it, or choose another folder by "
                "--run_dir"
            ) from error
        return file

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another process have the folder."""
        self.lock.close()

    def note(self, sentence: str, details: str = "") -> None:
        """Show a sentence to the user, and keep it, with details such as a traceback, in
        notes.txt."""
        print(sentence, file=sys.stderr)
        with suppress(OSError), (self.path / "notes.txt").open("a", errors="replace") as file:
            file.write(f"{sentence}\n{details}")

    def write_json(self, name: str, content: Any) -> None:
        """Write a file of JSON, completely or not at all. Raises OSError."""
        write(self.path / name, (json.dumps(content, indent=2) + "\n").encode())


def existing_run(name: str) -> Path:
    """Return the folder of a run, by its path or by its name in runs/. Raises ConfigError."""
    for path in (Path(name), Path("runs") / name):
        if any((path / "checkpoints" / x).exists() for x in (LAST, BEST)):
            return path
    raise ConfigError(f"--resume={name}: there is no run with a checkpoint")
