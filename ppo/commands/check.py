"""Check an environment and recommend how to train on it."""

import json
import shlex
from dataclasses import dataclass
from functools import partial
from typing import Any

from ppo.analysis.check import findings
from ppo.components import trial_pool
from ppo.config.config import Config, load_preset
from ppo.config.flags import Flags, flag
from ppo.config.resolve import preprocessing_of, resolve
from ppo.envs.make import canonical_id, family_of, make_env
from ppo.system.autotune import measure


@dataclass(frozen=True)
class Check(Flags):
    """Check an environment by random actions, as it is made for training."""

    env_name: str = flag(
        Config.env_name, "A gymnasium id, module:id or module:Class.", "env", "env_id"
    )
    env_kwargs: Any = flag("{}", "Keyword arguments that make the environment.", kind=dict)
    seed: int = flag(0, "Seed of resets and random actions.", low=0, high=2**31)

    def __call__(self) -> None:
        """Raises as resolve does, and WorkerError if the environment raises."""
        name = canonical_id(self.env_name)
        family, _ = family_of(name, self.env_kwargs)
        preset = load_preset("auto", name, family)
        config, spaces = resolve(
            Config(**{**preset, "env_name": name, "env_kwargs": self.env_kwargs})
        )
        speeds = {
            count: measure(trial_pool(config, spaces, count), config)
            for count in (0, int(config.num_workers))
        }
        fastest = max(speeds, key=lambda count: speeds[count])
        flags = [f"--env_name={name}", f"--model={config.model}", f"--num_workers={fastest}"]
        if self.env_kwargs:
            flags.append(f"--env_kwargs={json.dumps(self.env_kwargs)}")
        values = ", ".join(f"{key}={x}" for key, x in preset.items())
        whole_games = preprocessing_of(config)._replace(end_on_life_loss=False)
        lines = [
            *findings(partial(make_env, name, whole_games), self.seed),
            f"tuned values: {values or 'none, the defaults are taken'}",
            *(f"{count} worker processes collect {x:,.0f} steps/s" for count, x in speeds.items()),
            f"recommended: {shlex.join(['python', 'main.py', *flags])}",
        ]
        print(*lines, sep="\n")
