"""Crafter as an environment of gymnasium: Hafner, Benchmarking the Spectrum of Agent Capabilities
(2022), section 3. For benchmarks.colors; needs pip install crafter."""

from typing import Any

import crafter
import gymnasium
import numpy as np
from gymnasium import spaces


class Crafter(gymnasium.Env):
    """A world to survive in, of which images of 64 x 64 pixels show nine by seven squares.

    Each of 22 achievements is rewarded by 1 for the first time in an episode, health by a tenth of
    its change. An episode is terminated by the agent's death and truncated after 10,000 steps. The
    seed decides the map, not all that happens: crafter keeps creatures in sets, without an order.
    """

    observation_space = spaces.Box(0, 255, (64, 64, 3), np.uint8)
    action_space = spaces.Discrete(17)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.game = crafter.Env(seed=int(self.np_random.integers(2**31)))
        return self.game.reset(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        observation, reward, is_over, info = self.game.step(int(action))
        is_dead = info["discount"] == 0
        return observation, float(reward), is_dead, is_over and not is_dead, {}
