"""ppo check: examine an environment by random actions before training on it."""

import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, NamedTuple

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
LARGE = 100  # rewards that should be normalised


@dataclass(frozen=True)
class Flags:
    steps: int = flag(1000, 1, 1e9)
    """Number of random actions, which are played three times."""
    seconds: float = flag(10.0, 0.1, 1e9)
    """Seconds after which no further action is played, each time."""


def main(words: list[str], options: Flags, flags: dict[str, Any]) -> None:
    """Print a line for each finding. flags: of training. Raises PPOError for what training would
    refuse."""
    given = checked(flags, flags_of(Config))
    if words:
        given["env_name"] = words.pop(0)
    if words:
        raise ConfigError(f"what is {words[0]}? write flags as --name=value")
    from ppo.settings import LOOK, settle

    make_env = EnvMaker(Config(**{**given, **LOOK, "end_on_life_loss": False}))
    with calling(make_env.spec.id, PPOError):
        env = make_env()
        for line in described(env):
            print(line, flush=True)
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
        name = " ".join(["observations", ".".join(map(str, path))]).strip()
        is_read = holds_numbers(leaf)
        has_numbers |= is_read
        note = "" if is_read else " (not read: it has no fixed number of numbers)"
        yield f"{name}: {' '.join(str(leaf).split())}{note}"
    yield f"actions: {' '.join(str(acts).split())}"
    if not (has_numbers and holds_numbers(acts)):
        raise BadValue("its observations and actions must have a fixed number of numbers")


class Seen(NamedTuple):
    """What was returned once: a part of the observation, or a reward."""

    name: str
    checksum: int
    least: float
    largest: float


class Play:
    """Random actions in an environment, determined by a seed, and what it has returned.

    outside: spaces of parts that have left them, by name; episodes: return, length and whether
    truncated. Raises BadValue for what training refuses."""

    def __init__(self, env: Any, config: Config, options: Flags) -> None:
        layout = Layout(env.observation_space, config)
        self.env = env
        self.seed = config.seed
        self.parts = [*layout.vectors, *layout.images]
        self.seen: list[Seen] = []
        self.outside: dict[str, Any] = {}
        self.episodes: list[tuple[float, int, bool]] = []
        self.reset_seconds: list[float] = []
        self.step_seconds: list[float] = []
        self.generator = np.random.default_rng(self.seed)
        env.action_space.seed(self.seed)
        self.reset()
        end = time.perf_counter() + options.seconds
        while len(self.step_seconds) < options.steps and time.perf_counter() < end:
            if self.step():
                self.reset()

    def reset(self) -> None:
        begun = time.perf_counter()
        results = self.env.reset(seed=self.seed + len(self.reset_seconds))
        self.reset_seconds.append(time.perf_counter() - begun)
        is_pair = isinstance(results, tuple) and len(results) == 2
        if not (is_pair and isinstance(results[1], dict)):
            raise BadValue(f"its reset has returned {results!r:.200}, not (observation, info)")
        observation, self.info = results
        self.observe(observation)

    def step(self) -> bool:
        """Take a step; return whether it has ended the episode."""
        action = self.draw()
        begun = time.perf_counter()
        observation, reward, terminated, truncated, self.info = self.env.step(action)
        self.step_seconds.append(time.perf_counter() - begun)
        self.observe(observation)
        self.see(REWARD, np.float64(reward))
        is_over = bool(terminated or truncated)
        if is_over:
            episode_return, length = self.info[WHOLE_EPISODE]
            self.episodes.append((episode_return, length, not terminated))
        return is_over

    def draw(self) -> Any:
        """Return a random action that the last info's mask allows."""
        space = self.env.action_space
        if isinstance(space, Box):
            return space.sample()
        mask = mask_converter(space)(self.info.get("action_mask"))
        masks = mask.reshape(num_choices(space).size, -1)
        choices = [self.generator.choice(np.flatnonzero(x)) for x in masks]
        return action_converter(space)(np.array([choices]))[0]

    def observe(self, observation: Any) -> None:
        for part in self.parts:
            values = part.array(observation)
            self.see(part.name, values)
            is_inside = part.space.contains(values.astype(part.space.dtype))
            if not is_inside and not isinstance(part.space, Box):
                raise BadValue(f"its {part.name} {values} is not in {part.space}")
            if not is_inside:
                self.outside[part.name] = part.space

    def see(self, name: str, values: Any) -> None:
        if values.dtype.kind not in "biuf" or not np.isfinite(values).all():
            raise BadValue(f"its {name} must be finite numbers, not {values!r:.200}")
        checksum = zlib.crc32(values.tobytes())
        self.seen.append(Seen(name, checksum, float(values.min()), float(values.max())))

    def bounds(self, name: str) -> tuple[float, float]:
        """Return the least and the largest number of a part, or of rewards."""
        seen = [x for x in self.seen if x.name == name]
        return min(x.least for x in seen), max(x.largest for x in seen)

    def is_as(self, other: "Play") -> bool:
        """Return whether both have seen the same, as far as both have come."""
        return all(x == y for x, y in zip(self.seen, other.seen, strict=False))


def findings(first: Play, again: Play, fresh: Play, config: Config) -> Iterator[str]:
    """Yield what three plays with the same seed show, the second one in the environment of the
    first. config: with every "auto" resolved."""
    speed = 1 / median(first.step_seconds)
    yield f"speed: {speed:,.0f} steps/s, a reset takes {median(first.reset_seconds):.2g} s"
    least, largest = first.bounds(REWARD)
    yield f"rewards: {least:.4g} to {largest:.4g}"
    if least == largest == 0:
        yield "hint: every reward was 0: random actions may never earn one"
    largest = max(-least, largest)
    if largest > LARGE and not (config.normalize_rewards or config.clip_rewards):
        yield f"hint: rewards are as large as {largest:.4g}: give --normalize_rewards"
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
        least, largest = first.bounds(name)
        yield f"hint: {name} was {least:.4g} to {largest:.4g}, outside of {space}"
    for part in first.parts:
        if len({x.checksum for x in first.seen if x.name == part.name}) == 1:
            yield f"hint: {part.name} never changed"
    if not first.is_as(fresh):
        yield "hint: the same seed and actions lead elsewhere: runs cannot be repeated"
    elif not first.is_as(again):
        yield "hint: only a new environment repeats an episode: a resumed run begins new ones"
    else:
        yield "determinism: the same seed and actions lead to the same episodes"
