"""Examine an environment before training on it; this takes seconds."""

import re
import shlex
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ppo.commands.train import configure
from ppo.components import Components
from ppo.config.config import Config
from ppo.config.flags import as_arguments, flag
from ppo.config.learning_flags import EnvironmentFlags
from ppo.config.run_flags import TimeoutFlags
from ppo.config.settings import RunSettings, settings_of
from ppo.envs.columns import Columns
from ppo.envs.errors import ManyMade
from ppo.envs.isolation import ISOLATION
from ppo.envs.make import make_env
from ppo.envs.make_columns import make_columns
from ppo.envs.observations import describe_rounding, rounded_parts
from ppo.envs.teams import Team
from ppo.extras.tools.random_play import RandomPlay, play, play_columns
from ppo.system.hardware import available_cores

NUM_COLUMNS = 8  # environments of a batch, or agents of teams, that are played at most


def is_same(one: RandomPlay, other: RandomPlay) -> bool:
    """Return whether two records have the same observations and rewards, as far as both reach."""
    same_observations = map(np.array_equal, one.observations, other.observations)
    same_rewards = map(np.array_equal, one.rewards, other.rewards)
    return all(same_observations) and all(same_rewards)


def checker_warnings(env) -> list[str]:
    """Return the warnings of gymnasium's own checker about an environment, or its first error."""
    from gymnasium.utils.env_checker import check_env

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(env, skip_render_check=True)
        except Exception as error:  # its assertions, and whatever the environment raises
            return [f"{type(error).__name__}: {error}"]
    return [re.sub(r"\x1b\[\d+m|WARN: |\s+$", "", str(warning.message)) for warning in caught]


def findings(config, seed: int) -> list[str]:
    """Return lines for the user about the environments, the batch or the team that a config makes.

    seed: of resets and random actions. Raises EnvironmentUnavailable if it cannot be made, and what
    it raises itself."""
    try:
        return list(_findings(config, seed))
    except ManyMade:
        return list(_findings_of_columns(config, seed))


def _findings(config, seed: int) -> Iterator[str]:
    env = make_env(config)
    yield from _space_findings(env)
    record = play(env, seed)
    yield (
        f"a step takes {_duration(record.step_seconds)}, a reset {_duration(record.reset_seconds)}"
    )
    again = play(env, seed, close=True)
    fresh = play(make_env(config), seed, close=True)
    if is_same(record, again) and is_same(record, fresh):
        yield (
            "the same seed and actions lead to the same: runs repeat themselves, and are resumed "
            "exactly"
        )
    elif is_same(fresh, play(make_env(config), seed, close=True)):
        yield (
            "warning: only a new instance repeats itself: a resumed run begins new episodes, as if "
            "the open ones had been cut off"
        )
    else:
        yield "warning: the same seed and actions lead elsewhere: runs do not repeat themselves"
    yield from _record_findings(record, env.observation_space)
    if not hasattr(env.unwrapped, "ale"):  # those have the trainer's own wrappers
        for problem in checker_warnings(make_env(config).unwrapped):
            yield f"gymnasium's checker: {problem}"


def _findings_of_columns(config, seed: int) -> Iterator[str]:
    indices = range(min(config.num_envs, NUM_COLUMNS))

    def make() -> Columns:
        return make_columns(config, indices, [seed + index for index in indices])

    columns = make()
    batch = columns.batch
    yield from _space_findings(columns.envs[0])
    if isinstance(batch, Team):
        size = len(batch.agents)
        yield f"form: a team of {size} agents ({', '.join(map(str, batch.agents))}), a column each"
        what = f"{len(batch.copies)} copies of the team"
    else:
        yield f"form: a batch ({type(batch).__name__} of ppo.envs)"
        what = f"{len(columns.envs)} environments"
    record = play_columns(columns, seed)
    yield (
        f"a step of {what} takes {_duration(record.step_seconds)}, a reset of some of them "
        f"{_duration(record.reset_seconds)}"
    )
    if is_same(record, play_columns(make(), seed)):
        yield (
            "the same seeds and actions lead to the same: runs repeat themselves; a resumed run "
            "begins new episodes, and is exact but for that"
        )
    else:
        yield "warning: the same seeds and actions lead elsewhere: runs do not repeat themselves"
    yield from _record_findings(record, columns.envs[0].observation_space)
    if batch.note:
        yield f"warning: environment {config.env_name}: {batch.note}"
    elif any(is_truncated for *_, is_truncated in record.episodes):
        yield "truncated episodes end with their own last observation: their values are exact"


def _space_findings(env) -> Iterator[str]:
    yield f"observations: {' '.join(str(env.observation_space).split())}"
    yield f"actions: {' '.join(str(env.action_space).split())}"


def _record_findings(record: RandomPlay, space) -> Iterator[str]:
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


def _duration(seconds: list[float]) -> str:
    return f"{1e6 * np.median(seconds):,.0f} microseconds"


class Check(TimeoutFlags, EnvironmentFlags):
    """Check an environment by random actions, and its speed, also with four times --num_envs."""

    seed: int = flag(0, "Seed of resets and random actions.", low=0, high=2**31)

    def __call__(self) -> None:
        """Print findings, warnings, speeds and recommended flags.

        Raises ConfigError for unusable flags, EnvironmentUnavailable if the environment cannot be
        made, WorkerError if it fails."""
        defaults = vars(Check())
        given = {name: value for name, value in vars(self).items() if value != defaults[name]}
        given["env_name"] = self.env_name
        _, settings = configure(as_arguments(given))
        config = settings.config
        spaces = settings.spaces
        enough = min(available_cores(), config.total_steps // config.num_steps)
        enough -= enough % spaces.team_size
        if "num_envs" not in given and config.num_envs < enough:  # else cores stay idle
            given["num_envs"] = enough
            settings = settings_of(replace(settings.given, num_envs=enough))
            config = settings.config
        sizes = {"num_envs": 4 * config.num_envs, "total_steps": 4 * config.total_steps}
        more = settings.with_changes(sizes)
        flags = as_arguments({**given, "model": config.model})
        whole_games = replace(config, end_on_life_loss=False)
        found = ISOLATION.call("the check", config.env_name, findings, whole_games, self.seed)
        warnings = [f"warning: {warning}" for warning in spaces.warnings]
        found = [*dict.fromkeys([*found, *warnings])]  # a note of a batch is in both
        print(*found, *settings.notes, sep="\n", flush=True)
        for size in (settings, more):
            print(describe_speed(size.config, *measure(size)), flush=True)
        print(f"recommended: {shlex.join(['ppo', 'train', *flags])}")


def measure(settings: RunSettings) -> tuple[float, float]:
    """Return the environment steps per second of collecting alone, and of collecting and learning.

    Each is the greater one of two iterations after a warm-up iteration. Raises WorkerError if an
    environment fails too often."""
    parts = Components(settings)
    seconds = []
    with parts.make_pool() as pool:
        for iteration in range(1, 4):
            start = time.perf_counter()
            info = pool.collect(iteration)
            collected = time.perf_counter()
            batch = parts.make_batch(parts.finish_collect(iteration, info))
            parts.learner.update(batch, iteration)
            seconds.append((collected - start, time.perf_counter() - start))
    collecting, both = map(min, zip(*seconds[1:], strict=True))
    size = settings.config.rollout_size
    return size / collecting, size / both


def describe_speed(config: Config, collecting: float, both: float) -> str:
    """Return a line about the speed of a config. collecting, both: steps per second, as measure
    returns them."""
    return (
        f"{config.num_envs} environments, {config.num_workers} worker processes: "
        f"{collecting:,.0f} steps/s collected, {both:,.0f} trained"
    )
