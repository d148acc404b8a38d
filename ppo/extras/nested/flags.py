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
    policy_keys: str | None = fixed_flag(
        None,
        "Comma-separated keys of a Dict observation that the policy reads, all that predict and an "
        "exported file need; none: all.",
    )
    value_keys: str | None = fixed_flag(
        None,
        "The same for the value, which is needed in training only, and may read what a robot does "
        "not see; none: all, but where it shares a trunk with the policy.",
    )
