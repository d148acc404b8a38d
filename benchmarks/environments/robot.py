"""A robot in a plane, whose actions are in any box."""

from typing import Any

import numpy as np
from gymnasium import Env
from gymnasium.spaces import Box
from numpy import ndarray


class Robot(Env):
    """Drive to a goal and stop there within 50 steps. low, high: bounds of both actions, which
    stand for the same thrusts in any box. Rewards: the way towards the goal, 5 at the goal."""

    def __init__(self, low: float = -1, high: float = 1) -> None:
        self.action_space = Box(low, high, (2,))
        self.observation_space = Box(-np.inf, np.inf, (6,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.position, self.goal = self.np_random.uniform(-1, 1, (2, 2))
        self.velocity = np.zeros(2)
        self.steps = 0
        return self._observe(), {}

    def step(self, action: ndarray) -> Any:
        space: Any = self.action_space
        thrust = 2 * (action - space.low) / (space.high - space.low) - 1
        before = np.linalg.norm(self.goal - self.position)
        self.velocity = 0.9 * self.velocity + 0.02 * thrust
        self.position = self.position + self.velocity
        self.steps += 1
        distance = np.linalg.norm(self.goal - self.position)
        is_there = bool(distance < 0.05 and np.linalg.norm(self.velocity) < 0.02)
        reward = before - distance + 5 * is_there
        is_over = self.steps == 50
        return self._observe(), reward, is_there, is_over, {"is_success": is_there}

    def _observe(self) -> ndarray:
        parts = [self.position, self.velocity, self.goal]
        return np.concatenate(parts).astype(np.float32)
