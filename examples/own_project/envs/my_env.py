"""A task of your own: move a point in space to a target and stop there."""

import socket
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy import ndarray

MAX_STEPS = 60
TIME_STEP = 0.1


class Reach(gymnasium.Env):
    """Observe position, velocity, target and the way to it (12 numbers); act by a force (3).

    port: of a simulator that serves only this instance; here it is merely occupied. effort: weight
    of the force in the reward; level: 1 for near targets, 2 for far ones as well."""

    observation_space = spaces.Box(-np.inf, np.inf, (12,))
    action_space = spaces.Box(-1, 1, (3,))

    def __init__(self, port: int | None = None, effort: float = 0.0, level: int = 1) -> None:
        self.effort = effort
        self.level = level
        self.socket = socket.create_server(("127.0.0.1", port)) if port else None

    def set_training(self, level: int) -> None:
        """Take what run.set_env(level=...) sends; it counts from the next reset."""
        self.level = level

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.position = np.zeros(3)
        self.velocity = np.zeros(3)
        direction = self.np_random.normal(size=3)
        distance = self.np_random.uniform(0.5, 1.5 * self.level)
        self.target = distance * direction / np.linalg.norm(direction)
        self.steps = 0
        self.total_effort = 0.0
        return self._observation(), {}

    def step(self, action: ndarray) -> tuple[ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        before = np.linalg.norm(self.target - self.position)
        self.velocity = 0.8 * self.velocity + TIME_STEP * action
        self.position = self.position + self.velocity
        distance = np.linalg.norm(self.target - self.position)
        is_success = bool(distance < 0.15 and np.linalg.norm(self.velocity) < 0.15)
        effort = float(np.square(action).mean())
        self.total_effort += effort
        reward = float(before - distance) - 0.02 - self.effort * effort + 2.0 * is_success
        info = {"is_success": is_success, "effort": self.total_effort / self.steps}
        return self._observation(), reward, is_success, self.steps == MAX_STEPS, info

    def close(self) -> None:
        if self.socket:
            self.socket.close()

    def _observation(self) -> ndarray:
        parts = (self.position, self.velocity, self.target, self.target - self.position)
        return np.concatenate(parts).astype(np.float32)
