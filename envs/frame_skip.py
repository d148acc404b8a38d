"""Repeat actions and join successive observations, of any environment."""

from copy import deepcopy
from typing import Any

from gymnasium import Env, Wrapper
from gymnasium.wrappers import FlattenObservation, FrameStackObservation

from ppo.envs.episodes import StepResult


class RepeatAction(Wrapper):
    """Repeat each action several times, or until the episode ends, and sum the rewards. Each time
    it is a copy, which the environment may change."""

    def __init__(self, env: Env, times: int) -> None:
        super().__init__(env)
        self.times = times

    def step(self, action: Any) -> StepResult:
        total = 0.0
        for _ in range(self.times):
            observation, reward, terminated, truncated, info = self.env.step(deepcopy(action))
            total += float(reward)
            if terminated or truncated:
                break
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
