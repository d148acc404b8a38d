"""Environments of benchmarks.digests. They import nothing of the trainer, so any commit of it can
run them.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

Step = tuple[Any, float, bool, bool, dict[str, Any]]


class MaskedChoices(gymnasium.Env[Any, Any]):
    """Choose two numbers, some of which are forbidden in each step; an episode takes 7 steps."""

    observation_space = spaces.Box(-1, 1, (4,))
    action_space = spaces.MultiDiscrete([3, 2])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._observe()

    def step(self, action: Any) -> Step:
        assert self.allowed[[action[0], 3 + action[1]]].all()
        self.steps += 1
        reward = float(self.observation[0] * (action[0] - 1) + action[1] * self.observation[1])
        observation, info = self._observe()
        return observation, reward, False, self.steps == 7, info

    def _observe(self) -> tuple[Any, dict[str, Any]]:
        self.observation = self.np_random.uniform(-1, 1, 4).astype(np.float32)
        self.allowed = np.ones(5, np.int8)
        self.allowed[self.np_random.integers(3)] = 0
        return self.observation, {"action_mask": self.allowed}


class Camera(gymnasium.Env[Any, Any]):
    """Observe an image and a vector; an episode takes 5 to 8 steps."""

    observation_space = spaces.Dict(
        {"image": spaces.Box(0, 255, (40, 48, 3), np.uint8), "speed": spaces.Box(-1, 1, (3,))}
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(5, 9))
        return self._observe(), {}

    def step(self, action: Any) -> Step:
        self.left -= 1
        reward = float((self.speed[0] > 0) == action)
        return self._observe(), reward, self.left == 0 and self.lighter, self.left == 0, {}

    def _observe(self) -> Any:
        self.lighter = bool(self.np_random.integers(2))
        self.speed = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        image = self.np_random.integers(0, 100 + 100 * self.lighter, (40, 48, 3), np.uint8)
        return {"image": image, "speed": self.speed}
