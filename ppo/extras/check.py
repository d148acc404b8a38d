"""ppo check: examine an environment by random actions before training on it."""

import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from ppo.config import Config, flag
from ppo.envs.episodes import WHOLE_EPISODE
from ppo.envs.make import EnvMaker, calling
from ppo.envs.observations import Layout
from ppo.envs.spaces import action_converter, holds_numbers, leaves, mask_converter, num_choices
from ppo.errors import BadValue, ConfigError, PPOError
from ppo.flags import checked, flags_of

REWARD = "reward"
LARGE = 100  # rewards that should be normalized


@dataclass(frozen=True)
class Flags:
    steps: int = flag(1000, 1, 1e9)
    """Number of random actions in each of three runs."""
    seconds: float = flag(10.0, 0.1, 1e9)
    """Time limit of each run, in seconds."""


def main(words: list[str], options: Flags, flags: dict[str, Any]) -> None:
    """Print a line for each finding. flags: of training. Raises PPOError where training would."""
    given = checked(flags, flags_of(Config))
    if words:
        given["env_name"] = words.pop(0)
    if words:
        raise ConfigError(f"unexpected argument {words[0]}: write flags as --name=value")
    from ppo.settings import LOOK, settle

    settings = {**given, **LOOK, "end_on_life_loss": False}
    make_env = EnvMaker(Config(**settings))
    with calling(make_env.spec.id, PPOError):
        env = make_env()
        for line in described(env):
            print(" ".join(line.split()), flush=True)  # arrays of bounds have line breaks
        first = Play(env, make_env.config, options)
        again = Play(env, make_env.config, options)
        env.close()
        fresh = Play(make_env(), make_env.config, options)
    spaces = settle(given).spaces
    for line in findings(first, again, fresh, spaces.config):
        print(line)
    for hint in spaces.layout.hints:
        print(f"hint: {hint}")


def described(env: Any) -> Iterator[str]:
    """Yield the spaces of an environment. Raises BadValue if they cannot be used."""
    acts = env.action_space
    has_numbers = False
    for path, leaf in leaves(env.observation_space):
        place = ".".join(map(str, path))
        name = f"observations {place}".strip()
        is_read = holds_numbers(leaf)
        has_numbers |= is_read
        note = "" if is_read else " (ignored: its size is not fixed)"
        yield f"{name}: {leaf}{note}"
    yield f"actions: {acts}"
    if not (has_numbers and holds_numbers(acts)):
        raise BadValue("its spaces must be of fixed size, and actions neither a Dict nor a Tuple")


class Play:
    """Random actions in an environment, determined by a seed, and what it has returned.

    seen: names of rewards and of parts of observations, with checksums, as they came; bounds: least
    and largest number, by name; outside: spaces of parts that have left them, by name; episodes:
    return, length and whether truncated. Raises BadValue for what training refuses."""

    def __init__(self, env: Any, config: Config, options: Flags) -> None:
        layout = Layout(env.observation_space, config)
        self.env = env
        self.seed = config.seed
        self.parts = [*layout.vectors, *layout.images]
        self.seen: list[Any] = []
        self.bounds: dict[str, Any] = {}
        self.outside: dict[str, Any] = {}
        self.episodes: list[Any] = []
        self.reset_seconds: list[float] = []
        self.step_seconds: list[float] = []
        self.generator = np.random.default_rng(self.seed)
        env.action_space.seed(self.seed)
        self.reset()
        end = time.perf_counter() + options.seconds
        for _ in range(options.steps):
            if time.perf_counter() >= end:
                break
            if self.step():
                self.reset()

    def reset(self) -> None:
        seed = self.seed + len(self.reset_seconds)
        begun = time.perf_counter()
        observation, self.info = self.env.reset(seed=seed)
        self.reset_seconds.append(time.perf_counter() - begun)
        self.observe(observation)

    def step(self) -> bool:
        """Take a step; return whether it has ended the episode."""
        action = self.draw()
        begun = time.perf_counter()
        results = self.env.step(action)
        self.step_seconds.append(time.perf_counter() - begun)
        observation, reward, terminated, truncated, self.info = results
        self.observe(observation)
        self.see(REWARD, np.float64(reward))
        is_over = bool(terminated or truncated)
        if is_over:
            episode = *self.info[WHOLE_EPISODE], not terminated
            self.episodes.append(episode)
        return is_over

    def draw(self) -> Any:
        """Return a random action that the last info's mask allows."""
        space = self.env.action_space
        if isinstance(space, Box):
            return space.sample()
        given = self.info.get("action_mask")
        mask = mask_converter(space)(given)
        count = num_choices(space).size
        masks = mask.reshape(count, -1)
        choices = []
        for one in masks:
            allowed = np.flatnonzero(one)
            choices.append(self.generator.choice(allowed))
        actions = np.array([choices])
        return action_converter(space)(actions)[0]

    def observe(self, observation: Any) -> None:
        for part in self.parts:
            values = part.array(observation)
            self.see(part.name, values)
            space = part.space
            given = values.astype(space.dtype)
            if space.contains(given):
                continue
            if not isinstance(space, Box):
                raise BadValue(f"its {part.name} {values} is not in {space}")
            self.outside[part.name] = space

    def see(self, name: str, values: Any) -> None:
        is_number = values.dtype.kind in "biuf"
        if not is_number or not np.isfinite(values).all():
            raise BadValue(f"its {name} must be finite numbers, not {values!r:.200}")
        checksum = zlib.crc32(values.tobytes())
        self.seen.append((name, checksum))
        nothing = (np.inf, -np.inf)
        least, largest = self.bounds.get(name, nothing)
        least = min(least, float(values.min()))
        largest = max(largest, float(values.max()))
        self.bounds[name] = least, largest

    def is_as(self, other: "Play") -> bool:
        """Return whether both have seen the same, as far as both have come."""
        count = min(len(self.seen), len(other.seen))
        return self.seen[:count] == other.seen[:count]


def findings(
    first: Play,
    again: Play,
    fresh: Play,
    config: Config,
) -> Iterator[str]:
    """Yield what three plays with the same seed show, the second one in the environment of the
    first. config: with every "auto" resolved."""
    speed = 1 / median(first.step_seconds)
    yield f"speed: {speed:,.0f} steps/s, a reset takes {median(first.reset_seconds):.2g} s"
    least, largest = first.bounds[REWARD]
    yield f"rewards: {least:.4g} to {largest:.4g}"
    if least == largest == 0:
        yield "hint: every reward was 0: random actions may never earn one"
    largest = max(-least, largest)
    is_scaled = config.normalize_rewards or config.clip_rewards
    if largest > LARGE and not is_scaled:
        yield f"hint: rewards are as large as {largest:.4g}: consider --normalize_rewards"
    if first.episodes:
        returns, lengths, truncated = zip(*first.episodes, strict=True)
        yield (
            f"episodes: {len(returns)}, mean return {fmean(returns):.4g}, mean length "
            f"{fmean(lengths):.4g}, {fmean(truncated):.0%} truncated"
        )
    else:
        steps = len(first.step_seconds)
        yield f"hint: no episode ended within {steps} steps: --max_episode_steps truncates them"
    for name, space in first.outside.items():
        least, largest = first.bounds[name]
        yield f"hint: {name} ranged from {least:.4g} to {largest:.4g}, outside {space}"
    different = {*first.seen}
    names = [name for name, _ in different]
    for part in first.parts:
        if names.count(part.name) == 1:
            yield f"hint: {part.name} never changed"
    if not first.is_as(fresh):
        yield "hint: the same seed and actions give different episodes: runs are not reproducible"
    elif not first.is_as(again):
        yield "hint: episodes repeat only in a new environment: a resumed run starts new ones"
    else:
        yield "determinism: the same seed and actions reproduce the same episodes"
