"""Repeat actions and join successive observations, of any environment."""

from typing import Any

import numpy as np
from gymnasium import Env, Wrapper
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


class StackVectors(Wrapper):
    """Join the last num_vectors observations, of a Box, to one vector, the oldest first.

    After a reset all are the same."""

    def __init__(self, env: Env, num_vectors: int) -> None:
        super().__init__(env)
        self.num_vectors = num_vectors
        self.observation_space = flatten_space(batch_space(env.observation_space, num_vectors))

    def reset(self, **options: Any) -> Any:
        observation, info = self.env.reset(**options)
        self.joined = np.tile(observation.ravel(), self.num_vectors)
        return self.joined, info

    def step(self, action: Any) -> Any:
        observation, *others = self.env.step(action)
        self.joined = np.append(self.joined[observation.size :], observation)
        return self.joined, *others
