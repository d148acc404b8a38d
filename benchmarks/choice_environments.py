"""Wrappers of benchmarks.choices: CartPole in other spaces, or with masks. They import nothing of
the trainer.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class MultiBinaryActions(gymnasium.ActionWrapper):
    """Act by four bits, of which the first is the direction."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.action_space = spaces.MultiBinary(4)

    def action(self, action: Any) -> int:
        return int(action[0])


class MultiDiscreteActions(gymnasium.ActionWrapper):
    """Act by three choices, of which the first is the direction."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.action_space = spaces.MultiDiscrete([2, 3, 4])

    def action(self, action: Any) -> int:
        return int(action[0])


class DictActions(gymnasium.ActionWrapper):
    """Act by the direction, a choice and two numbers."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        parts = {"choice": spaces.Discrete(3), "numbers": spaces.Box(-1, 1, (2,))}
        self.action_space = spaces.Dict({"direction": spaces.Discrete(2), **parts})

    def action(self, action: Any) -> int:
        return int(action["direction"])


class Masks(gymnasium.Wrapper):
    """Say that both directions are allowed."""

    mask = np.ones(2, np.int8)

    def reset(self, **options: Any) -> Any:
        observation, info = self.env.reset(**options)
        return observation, {**info, "action_mask": self.mask}

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, {**info, "action_mask": self.mask}


class DictObservations(gymnasium.ObservationWrapper):
    """Observe positions and velocities as two parts."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        whole: Any = env.observation_space
        parts = {"positions": slice(0, None, 2), "velocities": slice(1, None, 2)}
        boxes = {name: spaces.Box(whole.low[x], whole.high[x]) for name, x in parts.items()}
        self.observation_space = spaces.Dict(boxes)

    def observation(self, observation: np.ndarray) -> dict[str, np.ndarray]:
        return {"positions": observation[::2], "velocities": observation[1::2]}
