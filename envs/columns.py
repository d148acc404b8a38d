"""Columns of the rollout: environments, stepped one by one. An extra may step another kind of
environments, by a class with the same methods."""

from contextlib import suppress
from typing import Any

import numpy as np
from numpy import ndarray

from ppo.envs.episodes import WHOLE_EPISODE, Values, set_attributes
from ppo.envs.make import EnvMaker, Spaces, calling, check_finite
from ppo.envs.observations import NUMBERS, Layout, Reader, shaped
from ppo.envs.spaces import ACTION_MASK, action_converter, holds_numbers, mask_converter
from ppo.envs.worker import Worker
from ppo.errors import ConfigError


class SingleColumns:
    """Step environments, one for each column of a worker. first: added to the numbers that the
    environments are given; options: of EnvMaker."""

    def __init__(self, worker: Worker, spaces: Spaces, first: int = 0, **options: Any) -> None:
        self.worker = worker
        self.spaces = spaces
        self.tables = worker.tables
        self.envs = []
        for index in worker.env_ids:
            worker.beat()
            env = spaces.make_env(first + index, **options)
            self.envs.append(env)
        self.readers: dict[int, Reader] = {}
        self.is_plain = spaces.layout.is_plain
        self.to_actions = action_converter(spaces.actions)
        self.to_mask = mask_converter(spaces.actions)
        self.applied: list[Values] = [{}] * len(self.envs)

    @staticmethod
    def look(make_env: EnvMaker) -> Spaces:
        """Take a first look at an environment; see ppo.envs.make.look."""
        config = make_env.config
        name = make_env.spec.id
        with calling(name):
            env: Any = make_env()
        try:
            observes = getattr(env, "observation_space", None)
            acts: Any = getattr(env, "action_space", None)
            layout = Layout(observes, config)
            if not (holds_numbers(acts) and layout.tables):
                raise ConfigError(
                    f"environment {name} has the spaces {observes} and {acts} (actions): both must "
                    "be of fixed size, and actions neither a Dict nor a Tuple"
                )
            read = Reader(layout)
            with calling(name, ConfigError):
                observation, info = env.reset(seed=0)
                check_finite(read(observation), "it")
                if ACTION_MASK not in info:
                    acts.seed(0)
                    observation, reward, *_, info = env.step(acts.sample())
                    check_finite({**read(observation), "rewards": reward}, "it")
                has_masks = ACTION_MASK in info and mask_converter(acts)(info[ACTION_MASK]).size > 0
        finally:
            with suppress(BaseException):
                env.close()
        return Spaces(make_env, observes, acts, has_masks)

    @staticmethod
    def size_of_evaluation(make_env: EnvMaker, num_envs: int, episodes: int) -> int:
        """Return how many columns an evaluation plays in, if num_envs are asked for."""
        return min(num_envs, episodes)

    def reset(self, row: int) -> None:
        for column in range(len(self.envs)):
            self.start_episode(row, column)

    def step(self, t: int, actions: ndarray) -> None:
        """Step by actions (n, D): write the rewards of row t, and the observations of row t + 1."""
        rewards = self.tables["rewards"][t]
        for column, action in enumerate(self.to_actions(actions)):
            self.worker.beat()
            observation, reward, terminated, truncated, info = self.envs[column].step(action)
            rewards[column] = reward
            if terminated or truncated:
                last = None if terminated else self.readers[column](observation)
                self.worker.end_episode(t, column, last, info)
                self.start_episode(t + 1, column, WHOLE_EPISODE in info)
            else:
                self._write(t + 1, column, observation, info)

    def start_episode(self, row: int, column: int, is_whole: bool = True) -> None:
        """Start the next episode of a column, with its first observation in a row of the tables.
        is_whole: whether a whole one has ended before."""
        seed = self.worker.next_seed(column, is_whole)
        observation, info = self._reset(column, seed, self.worker.attributes)
        self._write(row, column, observation, info)

    def replay(self, column: int, seed: int, attributes: Values, actions: ndarray) -> bool:
        """Repeat an open episode by its seed, attributes and actions (L, D); return whether it
        leads to the observation in the last row of the tables."""
        env = self.envs[column]
        observation, _ = self._reset(column, seed, attributes)
        found = self.readers[column](observation)
        for action in self.to_actions(actions):
            self.worker.beat()
            observation, _, terminated, truncated, info = env.step(action)
            if WHOLE_EPISODE in info:
                return False
            if terminated or truncated:  # for the learner only
                self.readers[column] = Reader(self.spaces.layout)
                observation, _ = env.reset()
            found = self.readers[column](observation)
        for name, values in found.items():
            row = self.tables[name][-1, column]
            if not np.array_equal(row, values.astype(row.dtype), equal_nan=True):
                return False
        return True

    def close(self) -> None:
        for env in self.envs:
            with suppress(BaseException):
                env.close()
        self.envs.clear()  # they are freed now, not by the garbage collection of a cycle

    def _reset(self, column: int, seed: int, attributes: Values) -> Any:
        self.worker.beat()
        if attributes != self.applied[column]:
            set_attributes(self.envs[column], attributes)
            self.applied[column] = attributes
        self.readers[column] = Reader(self.spaces.layout)
        return self.envs[column].reset(seed=seed)

    def _write(self, row: int, column: int, observation: Any, info: Values) -> None:
        tables = self.tables
        if self.is_plain:
            tables[NUMBERS][row, column] = shaped(observation, self.spaces.observations)
        else:
            for name, values in self.readers[column](observation).items():
                tables[name][row, column] = values
        if self.spaces.has_masks:
            tables["action_masks"][row, column] = self.to_mask(info.get(ACTION_MASK))
