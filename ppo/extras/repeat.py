"""Repeat actions: --frame_skip, but for Atari games, which repeat theirs themselves."""

from copy import deepcopy
from typing import Any

from gymnasium import Env, Wrapper

from ppo.envs.episodes import Step, five


class RepeatAction(Wrapper):
    """Repeat each action several times, or until the episode ends, and sum the rewards."""

    def __init__(self, env: Env, times: int) -> None:
        super().__init__(env)
        self.times = times

    def step(self, action: Any) -> Step:
        total = 0.0
        for _ in range(self.times):
            own = deepcopy(action)  # the environment may change it
            observation, reward, terminated, truncated, info = five(self.env.step(own))
            total += reward
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info
