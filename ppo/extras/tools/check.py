"""Examine an environment before training on it; this takes seconds."""

import re
import shlex
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gymnasium import Env

from ppo.commands.train import configure
from ppo.components import Components
from ppo.config.config import Config, flags_of_extensions
from ppo.config.flags import Flags, as_arguments, flag
from ppo.config.learning_flags import EnvironmentFlags
from ppo.config.settings import RunSettings, settings_of
from ppo.envs.forms import SINGLE
from ppo.envs.make import make_env
from ppo.extras.tools.random_play import (
    duration,
    is_same,
    play,
    record_findings,
    space_findings,
)
from ppo.guard import guard
from ppo.system.hardware import available_cores


def checker_warnings(env: Env) -> list[str]:
    """Return the warnings of gymnasium's own checker about an environment, or its first error."""
    from gymnasium.utils.env_checker import check_env

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(env, skip_render_check=True)
        except Exception as error:  # its assertions, and whatever the environment raises
            return [f"{type(error).__name__}: {error}"]
    return [re.sub(r"\x1b\[\d+m|WARN: |\s+$", "", str(warning.message)) for warning in caught]


def findings(config: Config, seed: int, form: str = SINGLE) -> list[str]:
    """Return lines for the user about the environments that a config makes.

    seed: of resets and random actions; form: see ppo.envs.forms. Raises EnvironmentUnavailable if
    none can be made, and what it raises itself."""
    if form == SINGLE:
        return list(_findings(config, seed))
    from ppo.extras.tools.check_columns import findings_of_columns

    return list(findings_of_columns(config, seed))


def _findings(config: Config, seed: int) -> Iterator[str]:
    env = make_env(config)
    yield from space_findings(env)
    record = play(env, seed)
    yield (
        f"a step takes {duration(record.step_seconds)}, a reset {duration(record.reset_seconds)}"
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
    yield from record_findings(record, env.observation_space)
    if not hasattr(env.unwrapped, "ale"):  # those have the trainer's own wrappers
        for problem in checker_warnings(make_env(config).unwrapped):
            yield f"gymnasium's checker: {problem}"


if TYPE_CHECKING:

    class MoreFlags(Flags):
        """Flags of extensions by which environments are made."""

else:
    MoreFlags = flags_of_extensions("flags", environment=True)


class Check(MoreFlags, EnvironmentFlags):
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
        played = (findings, whole_games, self.seed, spaces.form)
        found = guard().call("the check", config, *played)
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
