"""Flags of demonstrations."""

from typing import TYPE_CHECKING

from ppo.config.flags import Count, Flags, fixed_flag, flag

if TYPE_CHECKING:
    from ppo.policy.spectators import Spectator  # heavy


class CloningFlags(Flags):
    """Demonstrations (behaviour cloning)."""

    demonstrations: str | None = fixed_flag(
        None,
        "Recorded episodes whose actions a new run learns to imitate before PPO; none: no cloning.",
        pattern=r".+\.npz",
        form="FILE.npz",
    )
    clone_epochs: Count = fixed_flag(20, "Number of epochs over the demonstrations.")


class RecordFlags(Flags):
    """Demonstrations of the episodes."""

    record: str | None = flag(
        None, "New .npz file for the episodes as demonstrations; none: no file."
    )

    def spectator(self) -> "Spectator | None":
        """Return what records them, if there is a file. Raises ConfigError if nothing can be
        written there."""
        from ppo.extras.demonstrations.recorder import Recording

        return Recording(self.record) if self.record else None
