"""Numbers of infos beside the reward, as a table of the rollout."""

from ppo.extensions import Column, Extension

HERE = "ppo.extras.reward_terms"
TERMS = Column(flag="reward_term", width=f"{HERE}.terms:width", reader=f"{HERE}.terms:reader")

EXTENSION = Extension(
    flags=(f"{HERE}.flags:RewardTermFlags",),
    wrap=f"{HERE}.terms:wrap",
    columns={"reward_terms": TERMS},
)
