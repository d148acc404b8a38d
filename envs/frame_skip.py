"""Repeat actions and join successive observations, of any environment."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import Env, Wrapper
from gymnasium.wrappers import FlattenObservation, FrameStackObservation

from ppo.envs.reward_terms import read_terms


class RepeatAction(Wrapper):
    """Repeat each action several times, or until the episode ends, and sum the rewards.

    reward_terms: names of numbers in infos to sum, too."""

    def __init__(self, env: Env, times: int, reward_terms: Sequence[str] = ()) -> None:
        super().__init__(env)
        self.times = times
        self.reward_terms = reward_terms

    def step(self, action):
        total = 0.0
        terms = np.zeros(len(self.reward_terms))
        for _ in range(self.times):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if self.reward_terms:
                terms += read_terms(info, self.reward_terms)
            if terminated or truncated:
                break
        if self.reward_terms:
            info = {**info, **dict(zip(self.reward_terms, terms.tolist(), strict=True))}
        return observation, total, terminated, truncated, info


def stack_vectors(env: Env, num_vectors: int) -> Env:
    """Concatenate the last num_vectors observations of a Box to one vector, the oldest first.

    After a reset, all of them are the first observation. Its observation_space has the space of
    each of them as layer."""
    copied = FlattenObservation(env)  # a copy: the environment may reuse its array
    stack = FlattenObservation(FrameStackObservation(copied, num_vectors, padding_type="reset"))
    space: Any = stack.observation_space
    space.layer = env.observation_space
    return stack
