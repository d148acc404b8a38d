"""The folder of a run: made once, used by one process at a time, never reused by another run."""

import fcntl
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from ppo.checkpoint import LAST, remove_temporary, write
from ppo.config import Config, name_of
from ppo.errors import CheckpointError, ConfigError, RunInUse, SaveFailed, reason


def find_resumed(config: Config) -> Path | None:
    """Return the folder of the run that --resume names, None for a new one. Raises ConfigError,
    CheckpointError if only its last checkpoint is missing."""
    if config.resume is None:
        return None
    if config.resume != "auto":
        for path in Path(config.resume), Path("runs", config.resume):
            if (path / "checkpoints" / LAST).exists():
                return path
        raise ConfigError(f"--resume={config.resume} is no folder or name of a run with a {LAST}")
    folder = _named_folder(config)
    if not folder:
        raise ConfigError("--resume=auto needs --run_dir or --name to know what to resume")
    last = folder / "checkpoints" / LAST
    if last.exists():
        return folder
    if any(last.parent.glob("[0-9]*.safetensors")):
        raise CheckpointError(f"{last} is missing: copy another checkpoint there to continue")
    return None


def _named_folder(config: Config) -> Path | None:
    folder = config.run_dir or (config.name and f"runs/{config.name}")
    return Path(folder) if folder else None


class RunFolder:
    """Own a run's folder until the context is left. Raises ConfigError if it cannot be used, or is
    not empty although nothing is resumed, RunInUse if another process trains there."""

    def __init__(self, config: Config, resumed: Path | None) -> None:
        path = resumed or _named_folder(config)
        try:
            self.shown = path or _new_folder(config)
            self.path = self.shown.absolute()  # an environment may change the working folder
            self.checkpoints = self.path / "checkpoints"
            self.path.mkdir(parents=True, exist_ok=True)
            left = {x.name for x in self.path.iterdir() if not x.name.startswith(".")}
            self.lock = (self.path / "lock").open("a")
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunInUse(f"another process trains in {path}: use another --run_dir") from error
        except OSError as error:
            raise ConfigError(
                f"the folder {path or 'runs'} cannot be used ({error.strerror or error}): choose "
                "another by --run_dir"
            ) from error
        # A run that was killed before its first checkpoint is begun again by --resume=auto.
        is_saved = (self.checkpoints / LAST).exists()  # by another process, just now
        is_begun = "config.json" in left or left == {"lock", "checkpoints"}
        is_begun &= "lock" in left and "summary.json" not in left and not is_saved
        if not resumed and left - {"lock"} and not (config.resume and is_begun):
            self.lock.close()
            if "lock" not in left:
                (self.path / "lock").unlink()
            raise ConfigError(
                f"the folder {self.shown} is not empty: choose another with --run_dir or --name, "
                f"or continue with --resume={self.shown}"
            )

    def __enter__(self) -> "RunFolder":
        self.checkpoints.mkdir(exist_ok=True)
        remove_temporary(self.path)
        remove_temporary(self.checkpoints)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.lock.close()
        if isinstance(error, (ConfigError, CheckpointError)):  # leave nothing, if nothing was saved
            with suppress(OSError):
                self.checkpoints.rmdir()
                for name in ("config.json", "notes.txt", "lock"):
                    (self.path / name).unlink(missing_ok=True)
                self.path.rmdir()

    def note(self, sentence: str, details: str = "") -> None:
        """Show a sentence to the user, and keep it in notes.txt, with details (a traceback)."""
        where = f" (traceback: {self.shown / 'notes.txt'})" if details else ""
        print(f"{sentence}{where}", file=sys.stderr)
        with suppress(OSError), (self.path / "notes.txt").open("a", errors="replace") as file:
            file.write(f"{sentence}\n{details}")

    def write_json(self, name: str, content: Any) -> None:
        """Write a file of JSON, completely or not at all. Raises SaveFailed."""
        try:
            write(self.path / name, (json.dumps(content, indent=2) + "\n").encode())
        except OSError as error:
            raise SaveFailed(f"{self.shown / name} cannot be written ({reason(error)})") from error


def _new_folder(config: Config) -> Path:
    name = name_of(config.env_name).rpartition(":")[2]
    name = name.rpartition("/")[2].partition("(")[0] or "run"
    Path("runs").mkdir(exist_ok=True)  # raises FileExistsError for a link to nowhere
    number = 0
    while True:
        number += 1
        with suppress(FileExistsError):
            path = Path("runs", f"{name}-{number}")
            path.mkdir()
            return path
