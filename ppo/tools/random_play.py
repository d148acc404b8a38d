"""Play random actions, and record what the environment returns."""

import time
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Discrete

from ppo.envs.episodes import close_env
from ppo.envs.spaces import ACTION_MASK

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

    Masked actions of a Discrete are not taken.

    close: whether to close the environment afterwards, in case it holds a port or a file."""
    record = RandomPlay([], [], [], [], [])
    env.action_space.seed(seed)

    def reset():
        start = time.perf_counter()
        observation, info = env.reset(seed=seed + len(record.reset_seconds))
        record.reset_seconds.append(time.perf_counter() - start)
        record.observations.append(np.array(observation))
        return info

    info = reset()
    first = 0  # step of the episode
    deadline = time.perf_counter() + SECONDS
    while len(record.rewards) < num_steps and time.perf_counter() < deadline:
        mask = None
        if ACTION_MASK in info and isinstance(env.action_space, Discrete):
            mask = np.asarray(info[ACTION_MASK], np.int8)
        action = env.action_space.sample(mask)
        start = time.perf_counter()
        observation, reward, terminated, truncated, info = env.step(action)
        record.step_seconds.append(time.perf_counter() - start)
        record.observations.append(np.array(observation))
        record.rewards.append(float(reward))
        if terminated or truncated:
            rewards = record.rewards[first:]
            record.episodes.append((sum(rewards), len(rewards), not terminated))
            first = len(record.rewards)
            info = reset()
    if close:
        close_env(env)
    return record
