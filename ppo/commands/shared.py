"""Flags and checks of files that several commands share."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ppo.config.flags import Flags, flag
from ppo.config.run_flags import TimeoutFlags
from ppo.envs.isolation import ISOLATION
from ppo.errors import ConfigError
from ppo.policy.load import load_policy
from ppo.policy.policy import Policy

VIDEOS = (".mp4", ".gif")


class TrustFlags(Flags):
    """Code of your own, which a file alone is not trusted to name."""

    env_name: str | None = flag(
        None,
        "Environment, repeated if it is an import path, or given as one if it was a class or "
        "function in Python; none: that of the run.",
    )
    wrapper: list[str] = flag((), "Wrappers, repeated if they are import paths.")
    model: str | None = flag(
        None, "Network, repeated if it is an import path; none: that of the run."
    )


class PolicyFlags(TimeoutFlags, TrustFlags):
    """Flags of commands that load policies."""

    def load(self, path: Path, **changes) -> Policy:
        """Load the policy of a checkpoint, and print warnings about its environment.

        changes: flags with other values than the run's; those that are None change nothing. Raises
        as ppo.policy.load.load_policy does."""
        ISOLATION.start()
        changes |= {name: getattr(self, name) for name in TimeoutFlags.names()}
        changes["wrapper"] = self.wrapper or None
        given = {name: value for name, value in changes.items() if value is not None}
        policy = load_policy(path, self.env_name, self.model, **given)
        for warning in policy.spaces.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        return policy


class PolicyCommand(PolicyFlags):
    """Flags of commands for one policy."""

    run: str = flag("", "Folder of a run, its name in runs/, or a checkpoint's file.", nargs=None)


def folder_of(checkpoint: Path) -> Path:
    """Return the folder of a checkpoint's run, or the one that it is in if it belongs to no run."""
    run = checkpoint.absolute().parents[1]
    if (run / "config.json").exists():
        return run
    return checkpoint.parent


def new_file(flag: str, path: str | Path, suffixes: Sequence[str]) -> Path:
    """Return the path of a file to be written, after making its folder.

    flag: begins error messages, such as "--output=". Raises ConfigError if the file exists or has
    another suffix, or if its folder is read-only or cannot be made.
    """
    path = Path(path)
    if path.suffix not in suffixes:
        raise ConfigError(f"{flag}{path}: give a name that ends with {' or '.join(suffixes)}")
    if path.exists():
        raise ConfigError(
            f"{flag}{path} is there already, and nothing is overwritten: give another name"
        )
    return check_folder(flag, path)


def check_folder(flag: str, path: Path) -> Path:
    """Make the folder of a file; return the file's path. Raises ConfigError if nothing can be
    written there."""
    problem = "its folder is read-only"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            problem = "it is a folder"
        elif os.access(path.parent, os.W_OK):
            return path
    except OSError as error:
        problem = str(error.strerror)
    raise ConfigError(f"{flag}{path} cannot be written to ({problem}): give another name")


def interval_text(interval) -> str:
    """Return text that describes a 95 % confidence interval (2,), empty for None."""
    if interval is None:
        return ""
    return " (95 % interval {:.1f} to {:.1f})".format(*interval)
