"""What an environment is like, in seconds, before it is trained on."""

import re
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

STEPS = 1_000
SECONDS = 3.0  # that random play may take


class Play(NamedTuple):
    """What random actions came to: seconds of each step and reset, each episode's return and length and whether a time
    limit ended it, and all rewards and observations."""

    steps: list[float]
    resets: list[float]
    episodes: list[tuple[float, int, bool]]
    rewards: list[float]
    observations: list[np.ndarray]


def play(env: Any, seed: int) -> Play:
    """Act at random, the same each time for a seed, for some steps or seconds."""
    result = Play([], [], [], [], [])
    env.action_space.seed(seed)
    begun, total, length = 0, 0.0, 0

    def reset() -> None:
        start = time.perf_counter()
        observation = env.reset(seed=seed + len(result.resets))[0]
        result.resets.append(time.perf_counter() - start)
        result.observations.append(np.array(observation))

    reset()
    deadline = time.perf_counter() + SECONDS
    while begun < STEPS and time.perf_counter() < deadline:
        begun, action, start = begun + 1, env.action_space.sample(), time.perf_counter()
        observation, reward, terminated, truncated, _ = env.step(action)
        result.steps.append(time.perf_counter() - start)
        result.observations.append(np.array(observation))
        result.rewards.append(float(reward))
        total, length = total + float(reward), length + 1
        if terminated or truncated:
            result.episodes.append((total, length, not terminated))
            total, length = 0.0, 0
            reset()
    return result


def is_same(one: Play, other: Play) -> bool:
    """Whether two plays went the same way, as far as both of them went."""
    seen, paid = (
        zip(one.observations, other.observations, strict=False),
        zip(one.rewards, other.rewards, strict=False),
    )
    return all(np.array_equal(a, b) for a, b in seen) and all(a == b for a, b in paid)


def complaints(env: Any) -> list[str]:
    """What gymnasium's own checker has against an environment."""
    from gymnasium.utils.env_checker import check_env

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(env, skip_render_check=True)
        except Exception as error:  # it asserts, and what it calls may raise anything
            return [f"{type(error).__name__}: {error}"]
    return [re.sub(r"\x1b\[\d+m|WARN: |\s+$", "", str(warning.message)) for warning in caught]


def findings(make: Callable[[], Any], seed: int) -> Iterator[str]:
    """What is to be said of the environments that make() gives, a line each."""
    env = make()
    for kind, space in (("observations", env.observation_space), ("actions", env.action_space)):
        yield f"{kind}: {' '.join(str(space).split())}"
    first, again = play(env, seed), play(env, seed)
    fresh = make()
    elsewhere = play(fresh, seed)
    yield f"a step takes {_duration(first.steps)}, a reset {_duration(first.resets)}"
    if is_same(first, again) and is_same(first, elsewhere):
        yield "the same seed and actions lead to the same: runs repeat themselves, and are resumed exactly"
    elif is_same(elsewhere, play(make(), seed)):
        yield "only a new instance repeats itself: --fresh_env_per_episode makes resuming exact"
    else:
        yield "warning: the same seed and actions lead elsewhere: runs do not repeat themselves"
    rewards, observations = np.array(first.rewards), np.stack(first.observations).astype(float)
    yield f"random actions earn {rewards.min():.3g} to {rewards.max():.3g} a step, {rewards.mean():.3g} on average"
    if not rewards.any():
        yield "warning: no reward was seen: it may take other actions than random ones to find one"
    elif not 1e-2 < np.abs(rewards).max() <= 100:
        yield "warning: rewards are far from 1: leave --normalize_rewards on"
    if first.episodes:
        returns, lengths, limits = (np.array(part) for part in zip(*first.episodes, strict=True))
        spread = f"{returns.mean():.3g} +/- {returns.std():.3g}"
        ends = f"{limits.mean():.0%} of them ended by a time limit"
        yield f"{len(returns)} episodes: return {spread}, {lengths.mean():.0f} steps, {ends}"
    else:
        yield f"warning: no episode ended within {len(rewards):,} steps"
    if (observations == observations[0]).all():
        yield "warning: all observations are the same"
    elif (size := np.abs(observations).max()) > 1_000:
        yield f"warning: observations are as large as {size:.3g}: leave --normalize_observations on"
    for problem in (
        () if hasattr(env.unwrapped, "ale") else complaints(env.unwrapped)
    ):  # that is our own
        yield f"gymnasium's checker: {problem}"


def _duration(seconds: list[float]) -> str:
    typical = float(np.median(seconds))
    return (
        f"{1e6 * typical:,.0f} microseconds"
        if typical < 1e-3
        else f"{1e3 * typical:,.1f} milliseconds"
    )
