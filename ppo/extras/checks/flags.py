"""Flags of checks."""

from ppo.config.flags import Flags, flag


class CheckFlags(Flags):
    """Checks of what environments return."""

    strict_spaces: bool = flag(
        False,
        "Raise an error instead of a warning for an observation outside of its space.",
        environment=True,
    )
