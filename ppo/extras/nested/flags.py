"""Flags of nested observations."""

from ppo.config.flags import Flags, fixed_flag


class NestedFlags(Flags):
    """Nested observations."""

    normalize_keys: str | None = fixed_flag(
        None,
        "Comma-separated keys of a Dict observation to normalise, nested ones as arm.joints; none: "
        "all but images.",
        environment=True,
    )
