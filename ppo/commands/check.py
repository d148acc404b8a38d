"""Check an environment and recommend how to train on it."""

import json
import shlex
from dataclasses import replace

from ppo.analysis.check import findings
from ppo.commands.train import configure
from ppo.components import trial_pool
from ppo.config.flags import as_arguments, flag
from ppo.config.learning_flags import EnvironmentFlags
from ppo.config.resolve import resolve
from ppo.config.run_flags import TimeoutFlags
from ppo.envs.isolation import ISOLATION
from ppo.system.autotune import measure


class Check(TimeoutFlags, EnvironmentFlags):
    """Check an environment by random actions, as it is made for training."""

    seed: int = flag(0, "Seed of resets and random actions.", low=0, high=2**31)

    def __call__(self) -> None:
        """Raises as resolve does, and WorkerError if the environment raises."""
        defaults = vars(Check())
        given = {name: value for name, value in vars(self).items() if value != defaults[name]}
        given["env_name"] = self.env_name
        if self.env_kwargs:
            given["env_kwargs"] = json.dumps(self.env_kwargs)
        _, config, notes = configure(as_arguments(given))
        config, spaces = resolve(config)
        speeds = {
            count: measure(trial_pool(config, spaces, count), config)
            for count in (0, config.num_workers)
        }
        fastest = max(speeds, key=speeds.__getitem__)
        flags = as_arguments({**given, "model": config.model, "num_workers": fastest})
        whole_games = replace(config, end_on_life_loss=False)
        print(
            *ISOLATION.call("the check", config.env_name, findings, whole_games, self.seed),
            *(f"warning: {warning}" for warning in spaces.warnings),
            *notes,
            *(f"{count} worker processes collect {x:,.0f} steps/s" for count, x in speeds.items()),
            f"recommended: {shlex.join(['python', 'main.py', *flags])}",
            sep="\n",
        )
