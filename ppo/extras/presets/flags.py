"""Flags of presets."""

from ppo.config.flags import Flags, fixed_flag


class PresetFlags(Flags):
    """Presets."""

    preset: str = fixed_flag(
        "auto",
        "Values for flags that are not given: the name of a preset or a JSON file; auto: those "
        "tuned for the environment or its family, none: the defaults shown here.",
        common=True,
    )
