"""Examine an environment, in seconds, before training on it."""

import re
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ppo.envs.make import make_env

STEPS = 1_000
SECONDS = 3.0  # of random play, at most


class RandomPlay(NamedTuple):
    """A record of random play: seconds of each step and reset; return, length and whether a time
    limit ended it, of each episode; all rewards and observations."""

    step_seconds: list[float]
    reset_seconds: list[float]
    episodes: list[tuple[float, int, bool]]
    rewards: list[float]
    observations: list[np.ndarray]


def play(env: Any, seed: int) -> RandomPlay:
    """Take random actions, always the same for a seed, for STEPS or SECONDS."""
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
    while len(record.rewards) < STEPS and time.perf_counter() < deadline:
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
    return record


def is_same(one: RandomPlay, other: RandomPlay) -> bool:
    """Compare two records as far as both of them reach."""
    pairs: list[tuple[Any, Any]] = [
        *zip(one.observations, other.observations, strict=False),
        *zip(one.rewards, other.rewards, strict=False),
    ]
    return all(np.array_equal(mine, yours) for mine, yours in pairs)


def checker_warnings(env: Any) -> list[str]:
    """Return what gymnasium's own checker finds wrong with an environment."""
    from gymnasium.utils.env_checker import check_env

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(env, skip_render_check=True)
        except Exception as error:  # its assertions, and whatever the environment raises
            return [f"{type(error).__name__}: {error}"]
    return [re.sub(r"\x1b\[\d+m|WARN: |\s+$", "", str(warning.message)) for warning in caught]


def findings(config: Any, seed: int) -> list[str]:
    """Return a line on each property of the environments that make_env(config) returns."""
    return list(_findings(partial(make_env, config), seed))


def _findings(make: Callable[[], Any], seed: int) -> Iterator[str]:
    env = make()
    yield f"observations: {' '.join(str(env.observation_space).split())}"
    yield f"actions: {' '.join(str(env.action_space).split())}"
    record = play(env, seed)
    step = _duration(record.step_seconds)
    yield f"a step takes {step}, a reset {_duration(record.reset_seconds)}"
    yield _repeatability(record, env, make, seed)
    yield from _record_findings(record)
    if not hasattr(env.unwrapped, "ale"):  # Atari games have the trainer's own wrappers
        for problem in checker_warnings(env.unwrapped):
            yield f"gymnasium's checker: {problem}"


def _repeatability(record: RandomPlay, env: Any, make: Callable[[], Any], seed: int) -> str:
    again = play(env, seed)
    fresh = play(make(), seed)
    if is_same(record, again) and is_same(record, fresh):
        return (
            "the same seed and actions lead to the same: runs repeat themselves, and are resumed "
            "exactly"
        )
    if is_same(fresh, play(make(), seed)):
        return "only a new instance repeats itself: --fresh_env_per_episode makes resuming exact"
    return "warning: the same seed and actions lead elsewhere: runs do not repeat themselves"


def _record_findings(record: RandomPlay) -> Iterator[str]:
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
    observations = np.stack(record.observations).astype(float)
    largest = np.abs(observations).max()
    if (observations == observations[0]).all():
        yield "warning: all observations are the same"
    elif largest > 1_000:
        yield (
            f"warning: observations are as large as {largest:.3g}: leave --normalize_observations "
            "on"
        )


def _duration(seconds: list[float]) -> str:
    typical = np.median(seconds)
    if typical < 1e-3:
        return f"{1e6 * typical:,.0f} microseconds"
    return f"{1e3 * typical:,.1f} milliseconds"
