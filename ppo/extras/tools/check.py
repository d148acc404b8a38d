"""Examine an environment before training on it, within a minute."""

import math
import os
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import Env

from ppo.commands.train import configure
from ppo.components import Components
from ppo.config.config import Config, flags_of_extensions
from ppo.config.flags import (
    DURATION,
    Flags,
    as_arguments,
    command_line,
    flag,
    pasted,
    seconds_of,
)
from ppo.config.learning_flags import EnvironmentFlags
from ppo.config.settings import RunSettings, settings_of
from ppo.envs.episodes import close_env
from ppo.envs.errors import worker_error
from ppo.envs.forms import SINGLE
from ppo.envs.make import make_env
from ppo.errors import PPOError
from ppo.extras.tools.random_play import (
    NOT_REPEATED,
    Found,
    duration,
    is_same,
    play,
    record_findings,
    space_findings,
)
from ppo.guard import OnProgress, guard, ignore
from ppo.models.observation_parts import images_of
from ppo.system.hardware import available_cores
from ppo.system.output import ERASE_LINE
from ppo.system.signals import RAISED_BY_SIGNALS

CHECKER_RESETS = 15  # of gymnasium's checker, at most
PROBED_STEPS = 16  # of each environment, to learn how long a whole rollout would take
SECONDS_BETWEEN_LINES = 5


def checker_warnings(env: Env) -> list[str]:
    """Return the warnings of gymnasium's own checker about an environment, or its first error."""
    from gymnasium.utils.env_checker import check_env

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            # Its check of close makes another instance beside this one, on the same port.
            check_env(env, skip_render_check=True, skip_close_check=True)
        except Exception as error:  # its assertions, and whatever the environment raises
            message = " ".join(str(error).split())
            *_, last = traceback.extract_tb(error.__traceback__)
            if Path(last.filename).is_relative_to(Path(gymnasium.__file__).parent):
                return [message]
            place = f"line {last.lineno} of {os.path.relpath(last.filename)}"
            return [f"a call of the environment fails, in {place}: {message}"]
    return [re.sub(r"\x1b\[\d+m|WARN: |\s+$", "", str(warning.message)) for warning in caught]


def findings(
    config: Config, seed: int, seconds: float, form: str = SINGLE, on_progress: OnProgress = ignore
) -> Found:
    """Return what random actions in the environments that a config makes lead to.

    seed: of resets and random actions; seconds: after which nothing more is begun; form: see
    ppo.envs.forms; on_progress: called with the number of steps, which begins anew. Raises
    EnvironmentUnavailable if none can be made, WorkerError for what it raises itself."""
    find = _findings
    if form != SINGLE:
        from ppo.extras.tools.check_columns import findings_of_columns

        find = findings_of_columns
    found = Found()
    try:
        found.lines += find(config, seed, seconds, found, on_progress)
    except (PPOError, *RAISED_BY_SIGNALS):
        raise
    except Exception as error:
        culprit = (
            f"environment {config.env_name} (if it does so now and then only, end the episode "
            "there: --wrapper=examples.own_wrapper:EndAtException)"
        )
        raise worker_error(culprit, error) from error
    return found


def _findings(
    config: Config, seed: int, seconds: float, found: Found, on_progress: OnProgress
) -> Iterator[str]:
    start = time.perf_counter()
    env = make_env(config)
    found.make_seconds = time.perf_counter() - start
    playing: Any = partial(play, seed=seed, on_progress=on_progress)
    record = playing(env)
    taken = time.perf_counter() - start
    found.time_steps(record)
    yield (
        f"a step takes {duration(record.step_seconds)}, a reset {duration(record.reset_seconds)}"
    )
    if 4 * taken > seconds:
        close_env(env)
        yield NOT_REPEATED
    else:
        again = playing(env, close=True)
        fresh = playing(make_env(config), close=True)
        if is_same(record, again) and is_same(record, fresh):
            yield (
                "the same seed and actions lead to the same: runs repeat themselves, and are "
                "resumed exactly"
            )
        elif is_same(fresh, playing(make_env(config), close=True)):
            yield (
                "warning: only a new instance repeats itself: a resumed run begins new episodes, "
                "as if the open ones had been cut off"
            )
        else:
            yield "warning: the same seed and actions lead elsewhere: runs do not repeat themselves"
    yield from record_findings(record, env.observation_space, config, found)
    left = start + seconds - time.perf_counter()
    needed = found.make_seconds + CHECKER_RESETS * np.median(record.reset_seconds)
    if not hasattr(env.unwrapped, "ale") and needed < left:  # which has the trainer's own wrappers
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
    time_limit: str = flag(
        "60s", "Time that this may take: what would take longer is left out.", **DURATION
    )

    def __call__(self) -> None:
        """Print findings, warnings, speeds, and recommended flags with the reasons.

        Raises ConfigError for unusable flags, EnvironmentUnavailable if the environment cannot be
        made, WorkerError if it fails."""
        start = time.monotonic()
        limit = seconds_of(self.time_limit)
        defaults = vars(Check())
        given = {name: value for name, value in vars(self).items() if value != defaults[name]}
        given.pop("time_limit", None)
        given["env_name"] = self.env_name
        _, settings = configure(as_arguments(given))
        config = settings.config
        spaces = settings.spaces
        cores = available_cores()
        enough = min(cores, config.total_steps // config.num_steps)
        enough -= enough % spaces.team_size
        changes: dict[str, tuple[Any, str]] = {}
        if "num_envs" not in given and config.num_envs < enough:
            idle = cores - config.num_envs
            changes["num_envs"] = enough, f"{idle} of {cores} cores would have none to step"
            settings = settings_of(replace(settings.given, num_envs=enough))
            config = settings.config
        print(*space_findings(config, spaces), f"network: {config.model}", sep="\n", flush=True)
        show = Activity()
        whole_games = replace(config, end_on_life_loss=False)
        found = guard().call(
            "the check",
            config,
            findings,
            whole_games,
            self.seed,
            limit / 2,
            spaces.form,
            on_progress=lambda done: show(f"random actions: {done:,} steps"),
        )
        show.clear()
        warnings = [f"warning: {warning}" for warning in spaces.warnings]
        lines = dict.fromkeys([*found.lines, *warnings])  # a note of a batch is in both
        print(*lines, *settings.notes, sep="\n", flush=True)
        changes |= found.changes
        deadline = guard().deadlines(config).get("step")
        if deadline and 3 * found.slowest_step > deadline.seconds:
            why = f"a step has taken {found.slowest_step:.0f} s"
            changes[deadline.flag] = math.ceil(3 * found.slowest_step), why
        sizes = {"num_envs": 4 * config.num_envs, "total_steps": 4 * config.total_steps}
        ends = (start + 0.7 * limit, start + limit)
        for size, end in zip((settings, settings.with_changes(sizes)), ends, strict=True):
            speeds = measure(size, found, end - time.monotonic(), show)
            show.clear()
            print(describe_speed(size.config, speeds), flush=True)
            if speeds and size is settings:
                needed = roughly(config.total_steps / speeds[1])
                print(f"--total_steps={config.total_steps} take about {needed}", flush=True)
        for name, (value, why) in changes.items():
            print(f"change: {pasted(**{name: value})}, since {why}")
        values = {name: value for name, (value, _) in changes.items()}
        print(f"recommended: {command_line('train', **{**given, **values})}")


def roughly(seconds: float) -> str:
    """Return a duration as precisely as a guess of it may be."""
    for unit, length in {"days": 86_400, "hours": 3_600, "minutes": 60}.items():
        if (number := seconds / length) >= 2:
            return f"{number:.{0 if number >= 10 else 1}f} {unit}"
    return f"{seconds:.0f} seconds"


class Activity:
    """Show what is being done: on a terminal in a line that the next one replaces, elsewhere in a
    line every SECONDS_BETWEEN_LINES."""

    def __init__(self) -> None:
        self.next_line = time.monotonic() + SECONDS_BETWEEN_LINES

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        if sys.stdout.isatty():
            print(f"{ERASE_LINE}{text}", end="", flush=True)
        elif now >= self.next_line:
            self.next_line = now + SECONDS_BETWEEN_LINES
            print(text, flush=True)

    def clear(self) -> None:
        """Remove the line from a terminal."""
        if sys.stdout.isatty():
            print(ERASE_LINE, end="", flush=True)


def measure(
    settings: RunSettings, found: Found, seconds: float, show: Callable[[str], None]
) -> tuple[float, float] | None:
    """Return the environment steps per second of collecting alone, and of collecting and learning;
    None if they cannot be measured in about so many seconds.

    Rollouts are as short as need be for that. found: about the environment; show: shows what is
    being done. Raises WorkerError if an environment fails too often."""
    config = settings.config
    end = time.monotonic() + seconds
    num_each = -(-config.num_envs // max(1, int(config.num_workers)))  # environments of a worker
    seconds -= num_each * found.make_seconds
    steps = config.num_steps
    in_a_tenth = int(seconds / 10 / max(1e-9, num_each * found.step_seconds))
    if in_a_tenth < steps or images_of(settings.spaces.observations):  # which take long to learn
        fewest = -(-config.num_minibatches // config.num_envs)
        probed = max(fewest, min(PROBED_STEPS, in_a_tenth, steps))
        if in_a_tenth < fewest:
            return None
        speeds = _time_iterations(settings, probed, 2, show)
        left = end - time.monotonic() - num_each * found.make_seconds
        affordable = int(left / 3 * speeds[1] / config.num_envs)
        if affordable <= 2 * probed:
            return speeds
        steps = min(steps, affordable)
    return _time_iterations(settings, steps, 3, show)


def _time_iterations(
    settings: RunSettings, num_steps: int, count: int, show: Callable[[str], None]
) -> tuple[float, float]:
    """Return the speeds of measure: the greater ones of the iterations after a first one, in
    rollouts of so many steps."""
    settings = settings.with_changes({"num_steps": num_steps})
    parts = Components(settings)
    seconds = []
    with parts.make_pool() as pool:
        for iteration in range(1, count + 1):
            show(f"{settings.config.num_envs} environments: iteration {iteration} of {count}")
            start = time.perf_counter()
            info = pool.collect(iteration)
            collected = time.perf_counter()
            batch = parts.make_batch(parts.finish_collect(iteration, info))
            parts.learner.update(batch, iteration)
            seconds.append((collected - start, time.perf_counter() - start))
    collecting, both = map(min, zip(*seconds[1:], strict=True))
    size = settings.config.rollout_size
    return size / collecting, size / both


def describe_speed(config: Config, speeds: tuple[float, float] | None) -> str:
    """Return a line about the speeds of a config that measure returns."""
    said = "not measured for want of time: give a greater --time_limit"
    if speeds:
        said = "{:,.0f} steps/s collected, {:,.0f} trained".format(*speeds)
    return f"{config.num_envs} environments, {config.num_workers} worker processes: {said}"
