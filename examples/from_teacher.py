"""A teacher sees velocities, its student must remember: python -m examples.from_teacher"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ppo import load_policy, train


class CartPole(gymnasium.ObservationWrapper):
    """CartPole, its positions and its velocities apart."""

    def __init__(self, **options: Any) -> None:
        super().__init__(gymnasium.make("CartPole-v1", **options))
        part = spaces.Box(-np.inf, np.inf, (2,))
        self.observation_space = spaces.Dict({"positions": part, "velocities": part})

    def observation(self, observation: np.ndarray) -> dict[str, np.ndarray]:
        return {"positions": observation[::2], "velocities": observation[1::2]}


if __name__ == "__main__":  # worker processes import this file
    env = "examples.from_teacher:CartPole"
    teacher = train(env, total_steps=100_000, learning_rate=1e-3)
    taught = train(
        env,
        model="lstm",
        hidden_size=64,
        policy_keys="positions",
        teacher=teacher.checkpoint,
        teacher_coef=1,
        distill=True,
        total_steps=30_000,
        learning_rate=1e-3,
    )
    policy = load_policy(taught.checkpoint, env)
    print("mean return of the student:", policy.evaluate(episodes=20).mean)
