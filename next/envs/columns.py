"""Columns of the rollout: environments, stepped one by one.

An extra may step another kind of environments, by a class with the same methods."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium import Env
from numpy import ndarray

from ppo.envs.episodes import WHOLE_EPISODE, Episode, episode_metrics, set_attributes
from ppo.envs.make import Spaces, close
from ppo.envs.observations import NUMBERS, Reader
from ppo.envs.spaces import ACTION_MASK, action_converter, mask_converter
from ppo.errors import BadValue, ConfigError

if TYPE_CHECKING:
    from ppo.envs.worker import Worker

NOTHING: Mapping[str, Any] = {}


class LastObservation(NamedTuple):
    """The last observation of an episode that was truncated at this step: a row of each table."""

    step: int
    environment: int
    rows: dict[str, ndarray]


class Ended(NamedTuple):
    """What a step says of an episode that it ended. last: None after a termination; episode: None
    if the episode has ended for the learner only."""

    column: int
    last: LastObservation | None
    episode: Episode | None


class SingleColumns:
    """Step environments, one for each column of a worker. options: of EnvMaker."""

    def __init__(self, worker: "Worker", spaces: Spaces, **options: Any) -> None:
        self.worker = worker
        self.ids = worker.env_ids
        self.tables = worker.tables
        self.has_masks = spaces.has_masks
        self.is_plain = spaces.layout.is_plain
        self.shape = spaces.observations.shape
        self.envs: list[Env] = []
        for index in self.ids:
            worker.beat()
            env = spaces.make_env(index, **options)
            if env.observation_space.shape != self.shape:
                raise ConfigError(
                    f"environment {index} observes {env.observation_space}, not "
                    f"{spaces.observations}: all must have the same spaces"
                )
            self.envs.append(env)
        self.readers = [Reader(spaces.layout) for _ in self.ids]
        self.to_actions = action_converter(spaces.actions, spaces.config.squash_actions)
        self.to_mask = mask_converter(spaces.actions)
        self.attributes = NOTHING  # of new episodes
        self.applied = [NOTHING] * len(self.envs)

    def reset(self, row: int) -> None:
        """Start an episode in each column, with its first observation in a row of the tables."""
        for column in range(len(self.envs)):
            self.start_episode(row, column)

    def step(self, t: int, actions: ndarray) -> list[Ended]:
        """Step by actions (n, D): write the rewards of row t, and row t + 1. Return the episodes
        that have ended; there, row t + 1 is the first of the next episode."""
        ended = []
        rewards = self.tables["rewards"][t]
        numbers = self.tables[NUMBERS][t + 1] if self.is_plain else None
        for column, action in enumerate(self.to_actions(actions)):
            self.worker.beat()
            observation, reward, terminated, truncated, info = self.envs[column].step(action)
            rewards[column] = reward
            if terminated or truncated:
                end = self._end_episode(t, column, observation, terminated, info)
                ended.append(end)
                self.start_episode(t + 1, column, is_whole=end.episode is not None)
            elif numbers is not None:
                array = np.asarray(observation)
                if array.shape != self.shape:
                    self.readers[column](observation)  # raises
                numbers[column] = array
                if self.has_masks:
                    self._write_mask(t + 1, column, info)
            else:
                self._write(t + 1, column, observation, info)
        return ended

    def start_episode(self, row: int, column: int, is_whole: bool = True) -> None:
        """Start the next episode of a column."""
        seed = self.worker.next_seed(column, is_whole)
        observation, info = self.reset_env(column, seed, self.attributes)
        self._write(row, column, observation, info)

    def reset_env(self, column: int, seed: int, attributes: Mapping[str, Any]) -> Any:
        """Set an environment's attributes, and reset it; return its observation and info."""
        self.worker.beat()
        if attributes != self.applied[column]:
            set_attributes(self.envs[column], attributes)
            self.applied[column] = attributes
        self.readers[column].clear()
        return self.envs[column].reset(seed=seed)

    def replay(
        self, column: int, row: int, seed: int, attributes: Mapping[str, Any], actions: ndarray
    ) -> bool:
        """Repeat an open episode by its seed, attributes and actions (L, D); return whether it
        leads to the observation that a row of the tables holds."""
        read, env = self.readers[column], self.envs[column]
        observation, _ = self.reset_env(column, seed, attributes)
        rows = read(observation)
        for action in self.to_actions(actions):
            self.worker.beat()
            observation, _, terminated, truncated, info = env.step(action)
            if WHOLE_EPISODE in info:
                return False
            if terminated or truncated:  # for the learner only
                read.clear()
                observation, _ = env.reset()
            rows = read(observation)
        return all(
            np.array_equal(self.tables[name][row, column], rows[name], equal_nan=True)
            for name in rows
        )

    def close(self) -> None:
        """Close all environments."""
        for env in self.envs:
            close(env)

    def _end_episode(
        self, t: int, column: int, observation: Any, terminated: bool, info: dict[str, Any]
    ) -> Ended:
        last = episode = None
        if terminated:
            self.tables["terminations"][t, column] = True
        else:
            self.tables["truncations"][t, column] = True
            rows = {name: np.array(x) for name, x in self.readers[column](observation).items()}
            last = LastObservation(t, self.ids[column], rows)
        if WHOLE_EPISODE in info:
            total, length = info[WHOLE_EPISODE]
            episode = Episode(t, self.ids[column], total, length, episode_metrics(info))
        return Ended(column, last, episode)

    def _write(self, row: int, column: int, observation: Any, info: dict[str, Any]) -> None:
        for name, values in self.readers[column](observation).items():
            self.tables[name][row, column] = values
        if self.has_masks:
            self._write_mask(row, column, info)

    def _write_mask(self, row: int, column: int, info: dict[str, Any]) -> None:
        self.tables["action_masks"][row, column] = self.to_mask(info.get(ACTION_MASK))


def check_finite(rows: Mapping[str, ndarray], whose: str = "it") -> None:
    """Raise BadValue for numbers that are not finite."""
    for name, values in rows.items():
        if not np.isfinite(values).all():
            raise BadValue(f"{whose} has returned {name} that are not finite: {values}")
