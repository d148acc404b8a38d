"""Environments that a program registers with gymnasium; light, as worker processes import them."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Shop(gymnasium.Env):
    """Give the first price as the reward of each step, in episodes of one step."""

    observation_space = spaces.Box(0, 1, (2,))
    action_space = spaces.Box(-1, 1, (1,))

    def __init__(self, prices: Any = None) -> None:
        self.prices = {"a": 1} if prices is None else prices

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        return self.np_random.random(2, np.float32), {}

    def step(self, action: Any) -> Any:
        prices = [*self.prices.values()] if isinstance(self.prices, dict) else self.prices
        reward = float(prices[0])
        return self.np_random.random(2, np.float32), reward, True, False, {}


class Double(gymnasium.RewardWrapper):
    def reward(self, reward: Any) -> Any:
        return 2 * reward


def nested(**options: Any) -> Any:
    return Double(gymnasium.make("given/Shop-v0", **options))
