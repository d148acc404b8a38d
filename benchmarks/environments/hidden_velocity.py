"""CartPole without velocities, which a policy with a memory can balance."""

from typing import Any

import gymnasium
from gymnasium.spaces import Box


class HideVelocities(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Show the cart's position and the pole's angle only."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        whole = env.observation_space
        assert isinstance(whole, Box)
        self.observation_space = Box(whole.low[::2], whole.high[::2])

    def observation(self, observation: Any) -> Any:
        return observation[::2]
