"""Play random actions, and record what the environment returns."""

import time
from typing import NamedTuple

import numpy as np

from ppo.envs.episodes import close_env

SECONDS = 3.0  # at most


class RandomPlay(NamedTuple):
    """A record of random play: seconds of each step and reset, (return, length, was truncated) of
    each episode, all rewards and observations."""

    step_seconds: list[float]
    reset_seconds: list[float]
    episodes: list[tuple[float, int, bool]]
    rewards: list[float]
    observations: list[np.ndarray]


def play(env, seed: int, num_steps: int = 1_000, close: bool = False) -> RandomPlay:
    """Take num_steps random actions, determined by the seed, but for no longer than SECONDS.

    close: whether to close the environment afterwards, in case it holds a port or a file."""
    record = RandomPlay([], [], [], [], [])
    env.action_space.seed(seed)

    def reset() -> None:
        start = time.perf_counter()
        observation = env.reset(seed=seed + len(record.reset_seconds))[0]
        record.reset_seconds.append(time.perf_counter() - start)
        record.observations.append(np.array(observation))

    reset()
    first = 0  # step of the episode
    deadline = time.perf_counter() + SECONDS
    while len(record.rewards) < num_steps and time.perf_counter() < deadline:
        action = env.action_space.sample()
        start = time.perf_counter()
        observation, reward, terminated, truncated, _ = env.step(action)
        record.step_seconds.append(time.perf_counter() - start)
        record.observations.append(np.array(observation))
        record.rewards.append(float(reward))
        if terminated or truncated:
            rewards = record.rewards[first:]
            record.episodes.append((sum(rewards), len(rewards), not terminated))
            first = len(record.rewards)
            reset()
    if close:
        close_env(env)
    return record
