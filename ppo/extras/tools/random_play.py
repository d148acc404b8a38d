"""Play random actions, record what the environment returns, and say what that shows."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium import Env, Space
from gymnasium.spaces import Discrete

from ppo.envs.episodes import Info, close_env
from ppo.envs.observations import describe_rounding, rounded_parts, split_rows
from ppo.envs.probe import Spaces
from ppo.envs.spaces import ACTION_MASK, leaves
from ppo.guard import OnProgress, ignore
from ppo.policy.factories import describe_observations

if TYPE_CHECKING:
    from ppo.config.config import Config

SECONDS = 3.0  # at most
NOT_REPEATED = "not checked for want of time: whether runs repeat themselves (see --time_limit)"


@dataclass
class Found:
    """What a check has found, besides lines for the user.

    changes: values of flags that suit the environment better, and why; make_seconds,
    step_seconds: in which an environment is made, and steps; slowest_step: the longest that one has
    taken."""

    lines: list[str] = field(default_factory=list)
    changes: dict[str, tuple[Any, str]] = field(default_factory=dict)
    make_seconds: float = 0.0
    step_seconds: float = 0.0
    slowest_step: float = 0.0

    def time_steps(self, record: "RandomPlay", num_together: int = 1) -> None:
        """Note how long steps have taken, each of so many environments together."""
        self.step_seconds = float(np.median(record.step_seconds)) / num_together
        self.slowest_step = max(record.step_seconds)


class RandomPlay(NamedTuple):
    """A record of random play: seconds of each step and reset, (return, length, was truncated) of
    each episode, all rewards and observations."""

    step_seconds: list[float]
    reset_seconds: list[float]
    episodes: list[tuple[float, int, bool]]
    rewards: list[float]
    observations: list[np.ndarray]


def play(
    env: Env,
    seed: int,
    num_steps: int = 1_000,
    close: bool = False,
    on_progress: OnProgress = ignore,
) -> RandomPlay:
    """Take num_steps random actions, determined by the seed, but for no longer than SECONDS.

    Masked actions of a Discrete are not taken.

    close: whether to close the environment afterwards, in case it holds a port or a file;
    on_progress: called with the number of steps so far."""
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
        on_progress(len(record.rewards))
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


def space_findings(config: "Config", spaces: Spaces) -> Iterator[str]:
    """Yield lines about an environment's spaces, part by part, and how the policy reads them."""
    for what, space in (("observations", spaces.shown), ("actions", spaces.actions)):
        for path, leaf in leaves(space or spaces.observations):
            named = " ".join([what, ".".join(map(str, path))]).strip()
            yield f"{named}: {' '.join(str(leaf).split())}"
    for note in describe_observations(config, spaces.observations):
        yield note.replace("observations: ", "read as: ")


def record_findings(
    record: RandomPlay, space: Space[Any], config: "Config", found: Found
) -> Iterator[str]:
    """Yield lines about what random actions in an environment led to, and note in found which flags
    to change. space: of observations; config: the present settings."""
    rewards = np.array(record.rewards) + 0.0  # without -0.0
    largest = np.abs(rewards).max()
    yield (
        f"random actions earn {rewards.min():.3g} to {rewards.max():.3g} a step, "
        f"{rewards.mean():.3g} on average"
    )
    if not rewards.any():
        yield "warning: no reward was seen: random actions may not find one"
    elif not 1e-2 < largest <= 100 and not config.clip_rewards:
        yield f"warning: rewards are far from 1{_scaled(config, 'normalize_rewards')}"
        if not config.normalize_rewards:
            found.changes["normalize_rewards"] = True, f"rewards are as large as {largest:.3g}"
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
    for name, _, numbers in split_rows(space, rows):
        what = "observations" if name == "observation" else f"observations of {name}"
        largest = np.abs(numbers).max()
        if (numbers == numbers[0]).all():
            yield f"warning: {what} are constant"
        elif largest > 1_000:
            why = f"{what} are as large as {largest:.3g}"
            yield f"warning: {why}{_scaled(config, 'normalize_observations')}"
            if not config.normalize_observations:
                found.changes["normalize_observations"] = True, why


def _scaled(config: "Config", flag: str) -> str:
    """Return an ending for a warning about numbers that a flag scales, where it is on."""
    return f": leave --{flag} on" if getattr(config, flag) else ""


def duration(seconds: list[float]) -> str:
    """Return the median of durations as a text."""
    return f"{1e6 * np.median(seconds):,.0f} microseconds"
