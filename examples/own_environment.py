"""Define an environment: CartPole without velocities, so that the policy needs a memory.

python main.py examples.own_environment:HiddenVelocity --model=lstm
"""

from typing import Any

import gymnasium
from gymnasium import spaces
from numpy import ndarray


class HiddenVelocity(gymnasium.ObservationWrapper):
    """Show only the cart's position and the pole's angle.

    Any gymnasium.Env works: it needs observation_space, action_space, reset and step."""

    def __init__(self, **options: Any) -> None:
        super().__init__(gymnasium.make("CartPole-v1", **options))
        whole = self.env.observation_space
        assert isinstance(whole, spaces.Box)
        self.observation_space = spaces.Box(whole.low[::2], whole.high[::2])

    def observation(self, observation: ndarray) -> ndarray:
        return observation[::2]
