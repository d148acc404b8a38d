"""A task of one's own: move a point in space to a target and stop there."""

import socket
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

MAX_STEPS = 60
TIME_STEP = 0.1
VIEW = np.linspace(-1.8, 1.8, 36)  # where the pixels of a camera are
RADIUS = 0.1  # of the spots that a camera sees


class Reach(gymnasium.Env):
    """Observe position, velocity, target and the way to it (12 numbers); act by a force (3).

    port: of a simulator that serves this instance alone, here only taken; effort: weight of the
    force in the reward; level: 1 for near targets, 2 also for far ones.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (12,))
    action_space = spaces.Box(-1, 1, (3,))

    def __init__(self, port: int | None = None, effort: float = 0.0, level: int = 1) -> None:
        self.effort = effort
        self.level = level
        if port:
            self.socket = socket.create_server(("127.0.0.1", port))

    def set_training(self, level: int) -> None:
        """Take what run.set_env(level=...) sends; it counts from the next reset."""
        self.level = level

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.position = np.zeros(3)
        self.velocity = np.zeros(3)
        direction = self.np_random.normal(size=3)
        distance = self.np_random.uniform(0.5, 1.5 * self.level)
        self.target = distance * direction / np.linalg.norm(direction)
        self.steps = 0
        self.total_effort = 0.0
        return self._observation(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
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
        if hasattr(self, "socket"):
            self.socket.close()

    def _observation(self) -> np.ndarray:
        parts = (self.position, self.velocity, self.target, self.target - self.position)
        return np.concatenate(parts).astype(np.float32)


class CameraReach(Reach):
    """Reach, seen by two cameras as well.

    Observe the twelve numbers, "joints", and "camera": a view from above and one from the side, of
    the point and of the target in channels of their own.
    """

    observation_space: Any = spaces.Dict(
        {"camera": spaces.Box(0, 255, (36, 36, 4), np.uint8), "joints": Reach.observation_space}
    )

    def _observation(self) -> Any:
        places = (self.position, self.target)
        views = [draw_spot(place[0], place[axis]) for axis in (1, 2) for place in places]
        return {"camera": np.stack(views, -1), "joints": super()._observation()}


def draw_spot(x: float, y: float) -> np.ndarray:
    """Return an image (36, 36) uint8 of a round spot."""
    rows, columns = (np.exp(-(((VIEW - at) / RADIUS) ** 2) / 2) for at in (y, x))
    return (255 * np.outer(rows, columns)).astype(np.uint8)
