"""Change settings of a running run, as ppo set requests by a file in the run's folder."""

import fcntl
import os
from collections.abc import Collection
from dataclasses import replace
from os.path import exists
from pathlib import Path

from ppo.config.flags import Settings, as_arguments
from ppo.run.folder import RunFolder
from ppo.system.files import read_json, write_json

PENDING = "set.json"


def is_running(folder: Path) -> bool:
    """Return whether a process has locked a run's folder."""
    try:
        with (folder / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)  # otherwise there is no lock file
    return False


def apply_changes(parts, run: RunFolder, iteration: int) -> None:
    """Apply the changes that ppo set has requested since the last iteration, in all ranks.

    parts: ppo.components.Components. The file is renamed to set-<iteration>.json, so that a run
    resumed from an earlier checkpoint applies the changes at the same iteration again.
    """

    def find() -> Settings:
        pending = f"{run.path}/{PENDING}"  # four times as fast as a Path
        is_pending = exists(pending)
        if not is_pending and not parts.config.is_resumed:
            return {}
        path = run.path / f"set-{iteration}.json"
        if is_pending and not path.exists():
            os.replace(pending, path)
        return read_json(path, {})

    if changes := parts.ranks.broadcast_from_rank0(find):
        parts.config = replace(parts.config, **changes)
        parts.learner.configure(parts.config)
        run.event("set", f"from iteration {iteration} on: {' '.join(as_arguments(changes))}")


def forget_changes(folder: Path, names: Collection[str]) -> None:
    """Remove the named settings, which a resumed run was given new values for, from all changes."""
    for path in folder.glob("set*.json"):
        changes = read_json(path, {})
        write_json(path, {name: changes[name] for name in changes.keys() - names})
