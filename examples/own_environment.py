"""Define an environment: CartPole without velocities, so that a policy needs memory.

python main.py --env_name=examples.own_environment:HiddenVelocity --model=lstm
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class HiddenVelocity(gymnasium.ObservationWrapper):
    """Show the cart's position and the pole's angle only.

    Any gymnasium.Env works: it needs observation_space, action_space, reset and step.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(gymnasium.make("CartPole-v1", **options))
        whole = self.env.observation_space
        assert isinstance(whole, spaces.Box)
        self.observation_space = spaces.Box(whole.low[::2], whole.high[::2])

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation[::2]
