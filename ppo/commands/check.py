"""Check an environment and recommend how to train on it."""

import shlex
import time
from dataclasses import replace

from ppo.analysis.check import findings
from ppo.commands.train import configure
from ppo.components import Components
from ppo.config.config import Config
from ppo.config.flags import as_arguments, flag
from ppo.config.learning_flags import EnvironmentFlags
from ppo.config.resolve import resolve
from ppo.config.run_flags import TimeoutFlags
from ppo.envs.first_look import Spaces
from ppo.envs.isolation import ISOLATION
from ppo.system.hardware import available_cores


class Check(TimeoutFlags, EnvironmentFlags):
    """Check an environment by random actions, as it is made for training."""

    seed: int = flag(0, "Seed of resets and random actions.", low=0, high=2**31)

    def __call__(self) -> None:
        """Print findings, warnings, speeds and recommended flags.

        Raises as configure and resolve do, and WorkerError if the environment fails."""
        defaults = vars(Check())
        given = {name: value for name, value in vars(self).items() if value != defaults[name]}
        given["env_name"] = self.env_name
        _, config, notes = configure(as_arguments(given))
        enough = min(available_cores(), config.total_steps // config.num_steps)
        if "num_envs" not in given and config.num_envs < enough:  # else cores stay idle
            given["num_envs"] = enough
            config = replace(config, num_envs=enough)
        config, spaces = resolve(config)
        speeds = {
            count: measure(replace(config, num_workers=count), spaces)
            for count in (0, config.num_workers)
        }
        more = replace(config, num_envs=4 * config.num_envs, total_steps=4 * config.total_steps)
        fastest = max(speeds, key=lambda count: speeds[count][1])
        flags = as_arguments({**given, "model": config.model, "num_workers": fastest})
        whole_games = replace(config, end_on_life_loss=False)
        print(
            *ISOLATION.call("the check", config.env_name, findings, whole_games, self.seed),
            *(f"warning: {warning}" for warning in spaces.warnings),
            *notes,
            *(describe_speed(config.num_envs, count, *x) for count, x in speeds.items()),
            describe_speed(more.num_envs, more.num_workers, *measure(more, spaces)),
            f"recommended: {shlex.join(['python', 'main.py', *flags])}",
            sep="\n",
        )


def measure(config: Config, spaces: Spaces) -> tuple[float, float]:
    """Return the environment steps per second of collecting alone, and of collecting and learning.

    Each is the greater one of two iterations after a warm-up iteration. config: resolved, as
    resolve returns it. Raises WorkerError if an environment fails too often."""
    parts = Components(config, spaces)
    seconds = []
    with parts.make_pool() as pool:
        for iteration in range(1, 4):
            start = time.perf_counter()
            info = pool.collect(iteration)
            collected = time.perf_counter()
            batch = parts.make_batch(parts.receive(iteration, info))
            parts.learner.update(batch, iteration)
            seconds.append((collected - start, time.perf_counter() - start))
    collecting, both = map(min, zip(*seconds[1:], strict=True))
    return config.rollout_size / collecting, config.rollout_size / both


def describe_speed(num_envs: int, num_workers, collecting: float, both: float) -> str:
    """Return a line about the speed with so many environments and worker processes. collecting,
    both: steps per second, as measure returns them."""
    return (
        f"{num_envs} environments, {num_workers} worker processes: {collecting:,.0f} steps/s "
        f"collected, {both:,.0f} trained"
    )
