"""Flags of commands that load policies, and the folder of a checkpoint."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy import ndarray

from ppo.config.config import flags_of_extensions
from ppo.config.flags import Flags, flag
from ppo.guard import guard
from ppo.policy.load import read_policy
from ppo.policy.policy import Policy
from ppo.system.output import readable

if TYPE_CHECKING:

    class PlayFlags(Flags):
        """The flags of extensions for all commands that play."""

else:
    PlayFlags = flags_of_extensions("play_flags")


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


class PolicyFlags(PlayFlags, TrustFlags):
    """Flags of commands that load policies."""

    def load(self, path: Path, **changes: Any) -> Policy:
        """Load the policy of a checkpoint.

        changes: flags with other values than the run's; those that are None change nothing. Raises
        as ppo.policy.load.read_policy does."""
        guard().start()
        changes |= {name: getattr(self, name) for name in PlayFlags.names()}
        changes["wrapper"] = self.wrapper or None
        given = {name: value for name, value in changes.items() if value is not None}
        return read_policy(path, self.env_name, self.model, **given)


def folder_of(checkpoint: Path) -> Path:
    """Return the folder of a checkpoint's run, or the one that it is in if it belongs to no run."""
    run = checkpoint.absolute().parent.parent
    if (run / "config.json").exists():
        return run
    return checkpoint.parent


def interval_text(interval: ndarray | None) -> str:
    """Return text that describes a 95 % confidence interval (2,), empty for None."""
    if interval is None:
        return ""
    return " (95 % interval {} to {})".format(*map(readable, interval))
