"""Flags of reward terms."""

from ppo.config.flags import Flags, fixed_flag


class RewardTermFlags(Flags):
    """Reward terms."""

    reward_term: list[str] = fixed_flag(
        (),
        "Key of a number in each step's info to keep in rollout.reward_terms, for a --learner of "
        "your own; repeat the flag for several.",
        environment=True,
    )
