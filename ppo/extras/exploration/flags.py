"""Flags of exploration."""

from ppo.config.flags import Flags, Settings, fixed_flag, flag


class ExplorationFlags(Flags):
    """Exploration."""

    use_sde: bool = fixed_flag(
        False,
        "Explore continuous actions by generalized state-dependent exploration (gSDE) instead of "
        "independent noise; --log_std_init=auto is -2 then.",
    )
    sde_sample_freq: int = flag(
        -1, "Steps after which gSDE samples new noise; -1: once per rollout.", low=-1
    )


def resolve(config: Flags) -> Settings:
    """Return what --log_std_init=auto stands for with gSDE."""
    return {"log_std_init": -2.0} if ExplorationFlags.of(config).use_sde else {}
