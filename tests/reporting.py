"""An environment with numbers of its own: tests.reporting:Reporting."""

import os
import signal
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

KILL_AT = "REPORTING_KILL_AT"  # an episode's number at whose begin an instance ends its process


class Reporting(gymnasium.Env):
    """Episodes of four steps; all that is reported follows from the episode's seed.

    "late" is reported by few episodes."""

    observation_space = spaces.Box(0, 1, (2,))
    action_space = spaces.Discrete(2)
    episode = 0

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[np.ndarray, dict]:
        assert seed is not None
        self.episode += 1
        if self.episode == int(os.environ.get(KILL_AT, "0")):
            os.kill(os.getpid(), signal.SIGKILL)
        self.seed = seed
        self.steps = 0
        return self._observe(), {"at_reset": 1.0}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        if self.steps < 4:
            return self._observe(), float(action), False, False, {"step": self.steps}
        return self._observe(), float(action), True, False, report(self.seed)

    def _observe(self) -> np.ndarray:
        return np.array([self.steps / 4, self.seed % 7 / 7], np.float32)


def report(seed: int) -> dict[str, Any]:
    """Return the info of an episode's last step."""
    info: dict[str, Any] = {
        "is_success": seed % 2 == 0,
        "distance": np.float32(seed % 5),
        "level": seed % 3,
        "crashed": np.bool_(seed % 5 == 0),
        "angle in °": np.array([0.5]),
        "episode_metrics": {"energy": 2.5, "_hidden": 1, "nothing": None},
        # No metrics:
        "nan": float("nan"),
        "infinite": np.float64("inf"),
        "huge": 10**400,
        "complex": 1j,
        "text": "far",
        "numbers": np.ones(3),
        "words": np.array(["one"]),
        "_hidden": 3,
        "a, b": 1,
        "two\nlines": 2,
        "no character \udc80": 2,
        "episode": 7,
        "action_mask": np.ones(1, np.int8),
        "TimeLimit.truncated": False,
        5: 5.0,
    }
    if seed % 19 == 0:
        info["episode_metrics"]["late"] = seed % 100
    return info


def metrics_of(seed: int) -> dict[str, float]:
    """Return what of the report counts."""
    found = {
        "is_success": float(seed % 2 == 0),
        "distance": float(seed % 5),
        "level": float(seed % 3),
        "crashed": float(seed % 5 == 0),
        "angle in °": 0.5,
        "energy": 2.5,
        "5": 5.0,
    }
    found["success_rate"] = found["is_success"]
    if seed % 19 == 0:
        found["late"] = float(seed % 100)
    return found
