"""A form of environments: classes that are no gymnasium.Env, and have no infos."""

from functools import partial
from typing import Any, ClassVar

import numpy as np
from gymnasium import Env, spaces

from ppo.envs.env_kwargs import fill_in, tasks_of
from ppo.envs.episodes import RecordEpisode
from ppo.envs.lookup import look_up
from ppo.envs.make import preprocess
from ppo.envs.probe import look_at
from ppo.envs.worker import Worker, WorkerPart
from ppo.policy.evaluation import evaluate_envs


class Walk:
    """Walk on a line for ten steps; the reward is 1 for a step to the right."""

    sizes = (1, 2)  # of observations, and the number of actions

    def begin(self, seed: int | None) -> np.ndarray:
        self.time = self.place = 0
        return np.array([self.place], np.float32)

    def go(self, action: int) -> tuple[np.ndarray, float, bool]:
        self.time += 1
        self.place += 2 * action - 1
        return np.array([self.place], np.float32), float(action), self.time == 10


def make_walk(env_name: str) -> Walk:
    """Make what plugin/NAME stands for."""
    return Walk()


class Bare(Env):
    """Such an object as a gymnasium.Env."""

    def __init__(self, made: Walk) -> None:
        size, num_actions = made.sizes
        self.made = made
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,))
        self.action_space = spaces.Discrete(num_actions)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        return self.made.begin(seed), {}

    def step(self, action: Any) -> tuple[Any, ...]:
        observation, reward, is_over = self.made.go(action)
        return observation, reward, is_over, False, {}


def is_bare(spec: Any, made: Any) -> bool:
    return hasattr(made, "begin") and hasattr(made, "go")


def make_bare(config: Any, index: int = 0, finish: Any = preprocess) -> Env:
    tasks = tasks_of(config.env_kwargs)
    spec, _ = look_up(config.env_name, fill_in(tasks[index % len(tasks)], index))
    return finish(config, RecordEpisode(Bare(spec.entry_point(**spec.kwargs))))


class Begun(WorkerPart):
    """Tell how many episodes have begun, and take a number for each environment."""

    def tell(self) -> dict[int, Any]:
        counts = self.worker.own_counts.tolist()
        return dict(zip(self.worker.env_indices, counts, strict=True))

    def add(self, numbers: list[int], more: int) -> int:
        return sum(numbers) + more


class BareWorker(Worker):
    make_env: ClassVar = staticmethod(make_bare)


def look(config: Any, index: int) -> Any:
    return look_at(config, index, make_bare)._replace(form="bare")


evaluate = partial(evaluate_envs, make=make_bare)
