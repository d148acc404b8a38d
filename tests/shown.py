"""Spaces of observations of many kinds, and an environment that shows them."""

from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

SPACES: dict[str, Any] = {
    "states": spaces.Discrete(16),
    "states from -2": spaces.Discrete(5, start=-2),
    "one state": spaces.Discrete(1, start=4),
    "choices": spaces.MultiDiscrete([3, 2, 4], start=[0, 1, -1]),
    "grid of choices": spaces.MultiDiscrete([[2, 3], [4, 2]]),
    "bits": spaces.MultiBinary(4),
    "bits in a row": spaces.MultiBinary((1, 4)),
    "scalar": spaces.Box(-1, 1, ()),
    "whole scalar": spaces.Box(-5, 5, (), np.int64),
    "numbers": spaces.Box(-np.inf, np.inf, (3,), np.float64),
    "half": spaces.Box(-1, 1, (2, 3), np.float16),
    "whole numbers": spaces.Box(-5, 5, (3,), np.int32),
    "bytes": spaces.Box(0, 255, (3,), np.uint8),
    "dict": spaces.Dict(goal=spaces.Discrete(3), arm=spaces.Dict(x=spaces.Box(-1, 1, (2,)))),
    "tuple": spaces.Tuple((spaces.Discrete(3, start=1), spaces.Box(-1, 1, ()))),
    "mixed": spaces.Dict(
        bits=spaces.MultiBinary((2, 2)),
        choices=spaces.MultiDiscrete([2, 3], start=[1, -1]),
        grid=spaces.Box(0, 20, (3, 2), np.uint8),
        whole=spaces.Box(0, 60000, (2,), np.uint16),
        scalar=spaces.Box(-1, 1, (), np.float64),
    ),
    "tuple of tuples": spaces.Tuple(
        (spaces.Tuple((spaces.Discrete(2),)), spaces.Tuple((spaces.MultiBinary(2),)))
    ),
}


IMAGES: dict[str, Any] = {
    "colours": spaces.Box(0, 255, (40, 50, 3), np.uint8),
    "channels first": spaces.Box(0, 255, (3, 40, 50), np.uint8),
    "gray": spaces.Box(0, 255, (60, 36), np.uint8),
    "many channels": spaces.Box(0, 255, (36, 36, 5), np.uint8),
    "a stack": spaces.Box(0, 255, (4, 40, 40), np.uint8),
    "small": spaces.Box(0, 255, (5, 4), np.uint8),
    "nested": spaces.Dict(
        camera=spaces.Box(0, 255, (40, 50, 3), np.uint8),
        arm=spaces.Tuple((spaces.Box(0, 255, (36, 36), np.uint8), spaces.Box(-1, 1, (2,)))),
        goal=spaces.Discrete(3, start=1),
        text=spaces.Text(3),
    ),
    "one of a dict": spaces.Dict(camera=spaces.Box(0, 255, (40, 50, 3), np.uint8)),
    "as if preprocessed": spaces.Box(0, 255, (36, 36, 3), np.uint8),
}


class Samples(gymnasium.Env):
    """Shows members of a space at random, for episodes of three steps."""

    action_space: spaces.Space[Any] = spaces.Box(-1, 1, (2,))

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.observation_space = deepcopy(space)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.steps += 1
        return self.observation_space.sample(), float(action[0]), self.steps == 3, False, {}


class Shows(Samples):
    """Shows members of one of these spaces, by its name."""

    def __init__(self, name: str) -> None:
        super().__init__({**SPACES, **IMAGES}[name])
