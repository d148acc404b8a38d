"""A teacher sees velocities, its student must remember: python -m examples.from_teacher"""

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from torch import Tensor

from ppo import load_policy, train
from ppo.extras.recurrent.model import Recurrent, make_lstm_trunk
from ppo.models.actor_critic import Outputs, Step
from ppo.models.observation_parts import split


class CartPole(gymnasium.ObservationWrapper):
    """CartPole, its positions and its velocities apart."""

    def __init__(self, **options: Any) -> None:
        super().__init__(gymnasium.make("CartPole-v1", **options))
        part = spaces.Box(-np.inf, np.inf, (2,))
        self.observation_space = spaces.Dict({"positions": part, "velocities": part})

    def observation(self, observation: np.ndarray) -> dict[str, np.ndarray]:
        return {"positions": observation[::2], "velocities": observation[1::2]}


class Student(Recurrent):
    """An LSTM that reads positions only."""

    policy_parts = ("positions",)

    def __init__(self, observation_space: Any, action_space: Any, config: Any) -> None:
        seen = observation_space.parts["positions"]

        def make_trunk(layers: Any) -> Any:
            return make_lstm_trunk(seen, config, 64)

        super().__init__(make_trunk, action_space, replace(config, share_trunk=True))
        self.space = observation_space

    def forward(
        self, observations: Tensor, states: Any = None, starts: Any = None, rows: Any = None
    ) -> Outputs:
        seen = split(self.space, observations)["positions"]
        return super().forward(seen, states, starts, rows)

    def act(self, observations: Tensor, states: Any) -> Step:
        return super().act(split(self.space, observations)["positions"], states)


if __name__ == "__main__":  # worker processes import this file
    env = "examples.from_teacher:CartPole"
    teacher = train(env, total_steps=100_000, learning_rate=1e-3)
    student = "examples.from_teacher:Student"
    taught = train(
        env,
        model=student,
        teacher=teacher.checkpoint,
        teacher_coef=1,
        distill=True,
        total_steps=30_000,
        learning_rate=1e-3,
    )
    policy = load_policy(taught.checkpoint, env, student)
    print("mean return of the student:", policy.evaluate(episodes=20).mean)
