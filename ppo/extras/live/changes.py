"""Change settings of a running run, as ppo set requests by a file in the run's folder."""

import os
import time
from collections.abc import Collection
from os.path import lexists
from pathlib import Path

from ppo.callbacks.base import Callback, Run
from ppo.components import Components
from ppo.config.config import Config
from ppo.config.flags import Settings, as_arguments, check_values
from ppo.errors import CheckpointError
from ppo.run.folder import RunFolder
from ppo.run.resume import compare_settings
from ppo.system.files import load_json, locked, write_json

PENDING = "set.json"
MOVE = "move it away"


def read_changes(path: Path) -> Settings:
    """Return the settings in a file of ppo set, converted as flags are; {} if there is no file.

    Raises CheckpointError, naming the file and the setting, unless ppo set could have written them:
    an untrusted file must not change what a run imports, plays or allocates."""
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


def make_callbacks(parts: Components) -> list[Callback]:
    """Return the callback that every run has."""
    return [Changes()]


class Changes(Callback):
    """Apply the changes that ppo set has requested during an iteration from the next one on.

    Their file is renamed to set-<iteration>.json, so that a run resumed from an earlier checkpoint
    applies the changes at the same iteration again. What ppo set does not write is set aside, with
    an event: a file that somebody has placed there must not end the run.
    """

    is_late = True

    def __init__(self) -> None:
        self.is_stuck = False  # whether the file cannot be renamed

    def on_start(self, run: Run) -> None:
        if checkpoint := run.parts.settings.checkpoint:
            forget_changes(run.folder.path, compare_settings(run.parts.settings, checkpoint[1]))
        self.on_iteration(run)

    def on_iteration(self, run: Run) -> None:
        iteration = run.iteration + 1
        if changes := self._find(run.folder, run.config.is_resumed, iteration):
            run.change(**changes)
            message = f"from iteration {iteration} on: {' '.join(as_arguments(changes))}"
            run.folder.event("set", message)

    def _find(self, folder: RunFolder, is_resumed: bool, iteration: int) -> Settings:
        """Return the changes for an iteration."""
        pending = f"{folder.path}/{PENDING}"  # four times as fast as a Path
        is_pending = lexists(pending)
        if not is_pending and not is_resumed:
            return {}
        path = folder.path / f"set-{iteration}.json"
        try:
            if is_pending and not lexists(path):
                os.replace(pending, path)
            try:
                return read_changes(path)
            except CheckpointError as error:
                aside = path.rename(f"{path}.refused-{time.time_ns()}")
                done = f"it is not applied, and kept as {aside.name}"
                folder.event("set_refused", str(error).replace(MOVE, done))
        except OSError as error:
            if not self.is_stuck:
                self.is_stuck = True
                folder.event("set_refused", f"{pending} cannot be moved ({error.strerror})")
        return {}


def forget_changes(folder: Path, names: Collection[str]) -> None:
    """Remove the named settings, which a resumed run was given new values for, from all changes.
    Raises CheckpointError."""
    applied = [x for x in folder.glob("set-*.json") if x.stem.removeprefix("set-").isdecimal()]
    with locked(folder / PENDING):
        for path in (folder / PENDING, *applied):
            changes = read_changes(path)
            if changes.keys() & {*names}:
                write_json(path, {name: changes[name] for name in changes.keys() - names})
