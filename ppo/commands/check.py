"""Check an environment and recommend how to train on it."""

import json
import shlex
from dataclasses import replace
from typing import Any

from ppo.analysis.check import findings
from ppo.commands.train import configure
from ppo.components import trial_pool
from ppo.config.config import Config
from ppo.config.flags import flag
from ppo.config.resolve import resolve
from ppo.config.run_flags import TimeoutFlags
from ppo.envs.isolation import ISOLATION
from ppo.system.autotune import measure


class Check(TimeoutFlags):
    """Check an environment by random actions, as it is made for training."""

    env_name: str = flag(
        Config.env_name, "A gymnasium id, module:id or module:Class.", "env", "env_id"
    )
    env_kwargs: Any = flag("{}", "Keyword arguments that make the environment.")
    seed: int = flag(0, "Seed of resets and random actions.", low=0, high=2**31)

    def __call__(self) -> None:
        """Raises as resolve does, and WorkerError if the environment raises."""
        flags = [f"--env_name={self.env_name}"]
        timeouts = [f"--{name}={getattr(self, name)}" for name in TimeoutFlags.names()]
        if self.env_kwargs:
            flags.append(f"--env_kwargs={json.dumps(self.env_kwargs)}")
        _, config, notes = configure([*flags, *timeouts])
        config, spaces = resolve(config)
        speeds = {
            count: measure(trial_pool(config, spaces, count), config)
            for count in (0, config.num_workers)
        }
        flags += [f"--model={config.model}", f"--num_workers={max(speeds, key=speeds.__getitem__)}"]
        whole_games = replace(config, end_on_life_loss=False)
        print(
            *ISOLATION.call("the check", config.env_name, findings, whole_games, self.seed),
            *(f"warning: {warning}" for warning in spaces.warnings),
            *notes,
            *(f"{count} worker processes collect {x:,.0f} steps/s" for count, x in speeds.items()),
            f"recommended: {shlex.join(['python', 'main.py', *flags])}",
            sep="\n",
        )
