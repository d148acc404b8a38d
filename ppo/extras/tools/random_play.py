"""Play random actions, and record what the environment returns."""

import time
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Discrete

from ppo.envs.columns import Columns
from ppo.envs.episodes import WHOLE_EPISODE, close_env
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
        action = sample(env.action_space, info)
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


def play_columns(columns: Columns, seed: int, num_steps: int = 1_000) -> RandomPlay:
    """Do the same in all columns of a batch or a team, until they have num_steps steps together,
    and close them.

    Rewards and observations of the record are those of columns that are present, column by column
    within a step; step_seconds and reset_seconds are of all columns at once."""
    record = RandomPlay([], [], [], [], [])
    envs = columns.envs
    envs[0].action_space.seed(seed)
    infos: list[dict[str, Any]] = [{} for _ in envs]

    def begin(begun: np.ndarray) -> None:
        """Read the first observations of the episodes that begin in some columns (n,) bool."""
        for i in np.flatnonzero(begun):
            observation, infos[i] = envs[i].reset()
            record.observations.append(np.array(observation))

    start = time.perf_counter()
    columns.reset(range(seed, seed + len(envs)))
    record.reset_seconds.append(time.perf_counter() - start)
    begin(columns.present)
    deadline = time.perf_counter() + SECONDS
    while len(record.rewards) < num_steps and time.perf_counter() < deadline:
        actions = [sample(envs[0].action_space, info) for info in infos]
        start = time.perf_counter()
        columns.step(actions)
        record.step_seconds.append(time.perf_counter() - start)
        ended = np.zeros(len(envs), np.bool_)
        for i in np.flatnonzero(columns.present):
            observation, reward, terminated, truncated, infos[i] = envs[i].step(None)
            record.observations.append(np.array(observation))
            record.rewards.append(float(reward))
            ended[i] = terminated or truncated
            if ended[i]:
                record.episodes.append((*infos[i][WHOLE_EPISODE], not terminated))
        first_seed = seed + len(record.rewards)
        start = time.perf_counter()
        begun = columns.restart(ended, range(first_seed, first_seed + int(ended.sum())))
        if ended.any():
            record.reset_seconds.append(time.perf_counter() - start)
        begin(begun)
    close_env(columns)
    return record


def sample(space, info):
    """Return a random action, one that is allowed if a Discrete has a mask."""
    if ACTION_MASK in info and isinstance(space, Discrete):
        return space.sample(np.asarray(info[ACTION_MASK], np.int8))
    return space.sample()
