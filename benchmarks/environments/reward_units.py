"""Rewards in another unit, for benchmarks.value_norm."""

from typing import Any

import gymnasium


class InUnits(gymnasium.RewardWrapper[Any, Any]):
    """Multiply rewards by a factor."""

    def __init__(self, env: gymnasium.Env[Any, Any], factor: float) -> None:
        super().__init__(env)
        self.factor = factor

    def reward(self, reward: Any) -> float:
        return float(reward) * self.factor
