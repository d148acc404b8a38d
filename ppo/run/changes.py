"""Change settings of a running run, as ppo set requests by a file in the run's folder."""

import fcntl
import os
import time
from collections.abc import Collection
from os.path import lexists
from pathlib import Path

from ppo.config.config import Config
from ppo.config.flags import Settings, as_arguments, check_values
from ppo.errors import CheckpointError
from ppo.run.folder import RunFolder
from ppo.system.files import load_json, open_regular, write_json

PENDING = "set.json"
MOVE = "move it away"


def is_running(folder: Path) -> bool:
    """Return whether a process has locked a run's folder."""
    try:
        with open_regular(folder / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)  # otherwise there is no lock file
    return False


def read_changes(path: Path) -> Settings:
    """Return the settings in a file of ppo set, converted as flags are; {} if there is no file.

    Raises CheckpointError, naming the file and the setting, unless ppo set could have written them:
    a stranger's file must not change what a run imports, plays or allocates."""
    try:
        content = load_json(path)
        if not isinstance(content, dict):
            raise ValueError("it is no JSON object")
        if unknown := content.keys() - {*Config.names(live=True)}:
            raise ValueError(f"ppo set cannot change {min(unknown):.100}")
        return check_values(Config, content)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(f"{path} cannot be used ({reason}): {MOVE}") from error


class Changes:
    """Apply the changes that ppo set has requested since the last iteration, in all ranks.

    parts: ppo.components.Components. Their file is renamed to set-<iteration>.json, so that a run
    resumed from an earlier checkpoint applies the changes at the same iteration again.
    """

    def __init__(self, parts, run: RunFolder) -> None:
        self.parts = parts
        self.run = run
        self.pending = f"{run.path}/{PENDING}"  # four times as fast as a Path
        self.is_stuck = False  # whether the file cannot be renamed

    def apply(self, iteration: int) -> None:
        """Apply them before an iteration. What ppo set does not write is set aside, with an event:
        a file that somebody has placed there must not end the run."""
        parts = self.parts
        if changes := parts.ranks.broadcast_from_rank0(lambda: self._find(iteration)):
            parts.change_settings(changes)
            self.run.event(
                "set", f"from iteration {iteration} on: {' '.join(as_arguments(changes))}"
            )

    def _find(self, iteration: int) -> Settings:
        """Return the changes for an iteration."""
        is_pending = lexists(self.pending)
        if not is_pending and not self.parts.config.is_resumed:
            return {}
        path = self.run.path / f"set-{iteration}.json"
        try:
            if is_pending and not lexists(path):
                os.replace(self.pending, path)
            try:
                return read_changes(path)
            except CheckpointError as error:
                aside = path.rename(f"{path}.refused-{time.time_ns()}")
                done = f"it is not applied, and kept as {aside.name}"
                self.run.event("set_refused", str(error).replace(MOVE, done))
        except OSError as error:
            if not self.is_stuck:
                self.is_stuck = True
                self.run.event("set_refused", f"{self.pending} cannot be moved ({error.strerror})")
        return {}


def forget_changes(folder: Path, names: Collection[str]) -> None:
    """Remove the named settings, which a resumed run was given new values for, from all changes.
    Raises CheckpointError."""
    applied = [x for x in folder.glob("set-*.json") if x.stem.removeprefix("set-").isdecimal()]
    for path in (folder / PENDING, *applied):
        changes = read_changes(path)
        if changes.keys() & {*names}:
            write_json(path, {name: changes[name] for name in changes.keys() - names})
