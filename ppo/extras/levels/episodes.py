"""Begin each episode on the level that is drawn for it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Env, Wrapper

from ppo.envs.episodes import Info, layers, set_attributes
from ppo.envs.errors import EnvironmentUnavailable
from ppo.envs.worker import Worker, WorkerPart
from ppo.extras.levels.flags import SEED, LevelFlags, parse_levels

if TYPE_CHECKING:
    from ppo.config.config import Config

WEIGHTS = "level_weights"  # an attribute of environments: integers, as likely as levels are drawn


def width(config: "Config") -> int:
    """Return how many numbers a run keeps of each step: the level's, if there are levels."""
    return 1 if LevelFlags.of(config).levels else 0


def wrap(config: "Config", env: Env) -> Env:
    """Let an environment draw levels, if it has some."""
    return DrawLevels(env, config) if LevelFlags.of(config).levels else env


def reader(env: Env) -> Callable[[], int]:
    """Return what tells the level of an environment's last step."""
    (drawing,) = (layer for layer in layers(env) if isinstance(layer, DrawLevels))
    return lambda: drawing.level


class DrawLevels(Wrapper):
    """Draw a level for each episode, and set it before the reset.

    The draw depends on the seed of the reset and the weights of levels only, so that an episode
    which is played again is on the same level, whatever was played before. level: the present one,
    as its place in --levels; is_training: whether it is drawn by weights. Otherwise, as in
    evaluations, all levels are alike, and a level that was set by its name stays; seeds are those
    of the resets, and --eval_env has the levels of its own."""

    SAVED = ("level",)  # with the state of an emulator

    def __init__(self, env: Env, config: "Config") -> None:
        super().__init__(env)
        self.flag = str(LevelFlags.of(config).levels)
        self.name, self.values = parse_levels(self.flag)
        self.is_training = False
        self.has_own = config.env_name == config.eval_env or self.name == SEED
        self.others: dict[str, Any] = {}  # attributes that are none of this
        self.totals = np.arange(1, len(self.values) + 1)  # cumulative weights
        self.generator = np.random.default_rng()
        self.level = 0

    def set_training(self, **attributes: Any) -> None:
        """Take the weights of levels, and pass other attributes on. Raises EnvironmentUnavailable
        for other weights than LevelReplay has, and for a level in training, which is drawn."""
        weights = attributes.pop(WEIGHTS, [1] * len(self.values))
        is_list = isinstance(weights, list) and len(weights) == len(self.values)
        if not (
            is_list and all(type(x) is int and 0 <= x < 2**31 for x in weights) and any(weights)
        ):
            raise EnvironmentUnavailable(f"{WEIGHTS} are no weights of --levels={self.flag}")
        if self.is_training:
            if self.name in attributes:
                raise EnvironmentUnavailable(
                    f"set_env({self.name}=...): --levels={self.flag} draws it for each episode of "
                    "training, set something else, or leave --levels out"
                )
            self.totals = np.cumsum(weights)
        self.others = attributes
        set_attributes(self.env, attributes)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Info]:
        if seed is not None:
            self.generator = np.random.default_rng([seed, 1])  # not the environment's own stream
        if not self.is_training and (self.has_own or self.name in self.others):
            return self.env.reset(seed=seed, options=options)
        drawn = self.generator.integers(self.totals[-1])
        self.level = int(np.searchsorted(self.totals, drawn, side="right"))
        value = self.values[self.level]
        if self.name == SEED:
            return self.env.reset(seed=value, options=options)
        try:
            set_attributes(self.env, {**self.others, self.name: value})
        except EnvironmentUnavailable as error:
            raise EnvironmentUnavailable(f"--levels={self.flag}: {error}") from error
        return self.env.reset(seed=seed, options=options)


class InTraining(WorkerPart):
    """Let a worker's environments draw levels by their weights."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        for env in worker.envs:
            for layer in layers(env):
                if isinstance(layer, DrawLevels):
                    layer.is_training = True
