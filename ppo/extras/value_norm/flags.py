"""Flags of value normalisation."""

from typing import Literal

from ppo.config.flags import Flags, fixed_flag, flag


class ValueNormFlags(Flags):
    """Value normalisation."""

    value_norm: Literal["none", "popart", "running"] = fixed_flag(
        "none",
        "Learn values in units of the running deviation of returns, from their mean: popart keeps "
        "what has been learned where these change, running does not.",
    )
    value_norm_rate: float = flag(
        0.1,
        "Weight of an iteration's returns in their running mean and deviation; 1: of the last "
        "iteration alone.",
        needs="value_norm",
        low=0.001,
        high=1,
    )
