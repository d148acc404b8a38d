"""Play random actions, record what the environment returns, and say what that shows."""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Env, Space
from gymnasium.spaces import Discrete

from ppo.envs.episodes import Info, close_env
from ppo.envs.observations import describe_rounding, rounded_parts
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


def play(env: Env, seed: int, num_steps: int = 1_000, close: bool = False) -> RandomPlay:
    """Take num_steps random actions, determined by the seed, but for no longer than SECONDS.

    Masked actions of a Discrete are not taken.

    close: whether to close the environment afterwards, in case it holds a port or a file."""
    record = RandomPlay([], [], [], [], [])
    env.action_space.seed(seed)

    def reset() -> Info:
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


def sample(space: Space[Any], info: Info) -> Any:
    """Return a random action, one that is allowed if a Discrete has a mask."""
    if ACTION_MASK in info and isinstance(space, Discrete):
        return space.sample(np.asarray(info[ACTION_MASK], np.int8))
    return space.sample()


def is_same(one: RandomPlay, other: RandomPlay) -> bool:
    """Return whether two records have the same observations and rewards, as far as both reach."""
    same_observations = map(np.array_equal, one.observations, other.observations)
    same_rewards = map(np.array_equal, one.rewards, other.rewards)
    return all(same_observations) and all(same_rewards)


def space_findings(env: Env) -> Iterator[str]:
    """Yield lines about an environment's spaces."""
    yield f"observations: {' '.join(str(env.observation_space).split())}"
    yield f"actions: {' '.join(str(env.action_space).split())}"


def record_findings(record: RandomPlay, space: Space[Any]) -> Iterator[str]:
    """Yield lines about what random actions in an environment led to. space: of observations."""
    rewards = np.array(record.rewards)
    yield (
        f"random actions earn {rewards.min():.3g} to {rewards.max():.3g} a step, "
        f"{rewards.mean():.3g} on average"
    )
    if not rewards.any():
        yield "warning: no reward was seen: random actions may not find one"
    elif not 1e-2 < np.abs(rewards).max() <= 100:
        yield "warning: rewards are far from 1: leave --normalize_rewards on"
    if record.episodes:
        returns, lengths, limits = map(np.array, zip(*record.episodes, strict=True))
        yield (
            f"{len(returns)} episodes: return {returns.mean():.3g} +/- {returns.std():.3g}, "
            f"{lengths.mean():.0f} steps, {limits.mean():.0%} of them ended by a time limit"
        )
    else:
        yield f"warning: no episode ended within {len(rewards):,} steps"
    rows = np.stack(record.observations)
    for part in rounded_parts(space, rows):
        yield f"warning: {describe_rounding(*part)}"
    observations = rows.astype(float)
    largest = np.abs(observations).max()
    if (observations == observations[0]).all():
        yield "warning: observations are constant"
    elif largest > 1_000:
        yield (
            f"warning: observations are as large as {largest:.3g}: leave --normalize_observations "
            "on"
        )


def duration(seconds: list[float]) -> str:
    """Return the median of durations as a text."""
    return f"{1e6 * np.median(seconds):,.0f} microseconds"
