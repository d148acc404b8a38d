"""Repeat actions and join successive observations, of any environment."""

from collections import deque
from typing import Any

import numpy as np
from gymnasium import Env, ObservationWrapper, Wrapper
from gymnasium.spaces import flatten_space
from gymnasium.vector.utils import batch_space


class RepeatAction(Wrapper):
    """Repeat each action a number of times, at most to the episode's end, and sum the rewards."""

    def __init__(self, env: Env, times: int) -> None:
        super().__init__(env)
        self.times = times

    def step(self, action: Any) -> Any:
        total = 0.0
        for _ in range(self.times):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


class StackVectors(ObservationWrapper):
    """Join the last num_vectors observations, of a Box, to one vector, the oldest first.

    After a reset all are the same."""

    def __init__(self, env: Env, num_vectors: int) -> None:
        super().__init__(env)
        self.num_vectors = num_vectors
        self.observation_space = flatten_space(batch_space(env.observation_space, num_vectors))

    def reset(self, **options: Any) -> Any:
        self.vectors: deque[np.ndarray] = deque(maxlen=self.num_vectors)
        return super().reset(**options)

    def observation(self, observation: Any) -> np.ndarray:
        times = 1 if self.vectors else self.num_vectors
        self.vectors.extend([observation.flatten()] * times)
        return np.concatenate(self.vectors)
