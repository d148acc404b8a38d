"""Flags of demonstrations."""

from ppo.config.flags import Count, Flags, fixed_flag


class CloningFlags(Flags):
    """Demonstrations (behaviour cloning)."""

    demonstrations: str | None = fixed_flag(
        None,
        "Recorded episodes whose actions a new run learns to imitate before PPO; none: no cloning.",
        pattern=r".+\.npz",
        form="FILE.npz",
    )
    clone_epochs: Count = fixed_flag(20, "Number of epochs over the demonstrations.")
