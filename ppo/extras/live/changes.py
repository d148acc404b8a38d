"""Change settings of a running run, as ppo set requests by a file in the run's folder."""

import os
import time
from collections.abc import Collection
from functools import partial
from os.path import lexists
from pathlib import Path

from ppo.components import Components
from ppo.config.config import Config
from ppo.config.flags import Settings, as_arguments, check_values
from ppo.errors import CheckpointError
from ppo.parts import Part
from ppo.run.folder import RunFolder
from ppo.run.state import compare_settings
from ppo.system.files import load_json, write_json

PENDING = "set.json"
MOVE = "move it away"


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


def make_parts(parts: Components) -> dict[str, Part]:
    """Return the part that every run has."""
    return {"changes": Changes(parts)}


class Changes(Part):
    """Apply the changes that ppo set has requested since the last iteration, in all ranks.

    Their file is renamed to set-<iteration>.json, so that a run resumed from an earlier checkpoint
    applies the changes at the same iteration again.
    """

    def __init__(self, parts: Components) -> None:
        self.parts = parts
        self.is_first = True
        self.is_stuck = False  # whether the file cannot be renamed

    def on_begin(self, run: RunFolder, iteration: int) -> None:
        """Apply them before an iteration. What ppo set does not write is set aside, with an event:
        a file that somebody has placed there must not end the run."""
        parts = self.parts
        if self.is_first and parts.settings.checkpoint:
            given = compare_settings(parts.settings, parts.settings.checkpoint[1])
            parts.ranks.broadcast_from_rank0(partial(forget_changes, run.path, given))
        self.is_first = False
        if changes := parts.ranks.broadcast_from_rank0(lambda: self._find(run, iteration)):
            parts.change_settings(changes)
            run.event("set", f"from iteration {iteration} on: {' '.join(as_arguments(changes))}")

    def _find(self, run: RunFolder, iteration: int) -> Settings:
        """Return the changes for an iteration."""
        pending = f"{run.path}/{PENDING}"  # four times as fast as a Path
        is_pending = lexists(pending)
        if not is_pending and not self.parts.config.is_resumed:
            return {}
        path = run.path / f"set-{iteration}.json"
        try:
            if is_pending and not lexists(path):
                os.replace(pending, path)
            try:
                return read_changes(path)
            except CheckpointError as error:
                aside = path.rename(f"{path}.refused-{time.time_ns()}")
                done = f"it is not applied, and kept as {aside.name}"
                run.event("set_refused", str(error).replace(MOVE, done))
        except OSError as error:
            if not self.is_stuck:
                self.is_stuck = True
                run.event("set_refused", f"{pending} cannot be moved ({error.strerror})")
        return {}


def forget_changes(folder: Path, names: Collection[str]) -> None:
    """Remove the named settings, which a resumed run was given new values for, from all changes.
    Raises CheckpointError."""
    applied = [x for x in folder.glob("set-*.json") if x.stem.removeprefix("set-").isdecimal()]
    for path in (folder / PENDING, *applied):
        changes = read_changes(path)
        if changes.keys() & {*names}:
            write_json(path, {name: changes[name] for name in changes.keys() - names})
