"""Vector environments of gymnasium, and others like them: many environments step in one call.

A class or function with the parameter num_envs makes one; a worker's columns are its environments.
"""

from contextlib import suppress
from typing import Any

import numpy as np
from numpy import ndarray

from ppo.config import Config
from ppo.envs.episodes import WHOLE_EPISODE, Values
from ppo.envs.make import EnvMaker, Spaces, calling, check_finite, takes
from ppo.envs.observations import NUMBERS, Layout, Reader
from ppo.envs.spaces import ACTION_MASK, action_converter, mask_converter
from ppo.envs.worker import Worker
from ppo.errors import BadValue, ConfigError
from ppo.extras.autoreset import MaskedReset, Seeds, adapt
from ppo.process import available_cores


def make_vector(
    make_env: EnvMaker,
    index: int,
    seeds: Seeds,
) -> MaskedReset:
    """Make a vector environment of as many environments as there are seeds. index: the number of
    the first one in the run. Raises ConfigError for flags that it cannot obey."""
    config, spec = make_env.config, make_env.spec
    is_skipping = config.frame_skip not in ("auto", 1)
    if config.wrapper or is_skipping:
        raise ConfigError(
            f"{spec.id} steps several environments at once: give --frame_skip=1 and no --wrapper, "
            "or do both where these are made"
        )
    make: Any = spec.entry_point
    limit = config.max_episode_steps
    offered = {"index": index, "seeds": seeds, "max_episode_steps": limit}
    options: dict[str, Any] = {}
    for name, value in offered.items():
        if takes(make, name):
            options[name] = value
    if "max_episode_steps" in options:
        limit = None
    count = len(seeds)
    options |= {**spec.kwargs, "num_envs": count}
    made = make(**options)
    if not (isinstance(made, MaskedReset) or hasattr(made, "single_observation_space")):
        raise ConfigError(
            f"--env_name={spec.id} returned {made!r:.99}, not a gymnasium.vector.VectorEnv: for "
            "several agents, pass the PettingZoo environment itself"
        )
    if made.num_envs != count:
        found = f"has made {made.num_envs} environments for num_envs={count}"
        raise ConfigError(f"--env_name={spec.id} {found}: each worker has its share of --num_envs")
    return adapt(made, limit)


def examine(vector: MaskedReset, config: Config) -> bool:
    """Reset and, if all actions are allowed, step; return whether infos have action masks."""
    acts = vector.action_space
    read = Reader(Layout(vector.observation_space, config))
    vector.reset([0] * vector.num_envs)
    column = int(vector.present.argmax())
    first = read(vector.observation(column))
    check_finite(first, "it")
    if ACTION_MASK in vector.info(column):
        return True
    acts.seed(0)
    action = acts.sample()
    same = [action] * vector.num_envs
    actions = np.array(same, acts.dtype)
    rewards, *_ = vector.step(actions)
    second = read(vector.observation(column))
    check_finite({**second, "rewards": rewards}, "it")
    return False


def share_of(config: Config) -> int:
    """Return how many environments the first worker of a run makes."""
    workers = available_cores() if config.num_workers == "auto" else config.num_workers
    return max(1, config.num_envs // max(1, workers))


class VectorColumns:
    """Step a vector environment; see ppo.envs.columns.SingleColumns. It is made at the reset, which
    comes once, for some have their seeds where they are made."""

    make = staticmethod(make_vector)
    envs = (None,)  # there is none to show

    def __init__(
        self,
        worker: Worker,
        spaces: Spaces,
        first: int = 0,
        **options: Any,
    ) -> None:
        if options.get("render_mode"):
            raise ConfigError(
                "a vector environment cannot be rendered: choose another with --env_name"
            )
        self.worker = worker
        self.spaces = spaces
        self.first = first
        self.layout = spaces.layout
        self.tables = worker.tables
        names = self.layout.tables
        self.observed = {name: worker.tables[name] for name in names}
        self.size = len(worker.env_ids)
        self.returns = np.zeros(self.size)
        self.lengths = np.zeros(self.size, int)
        self.readers: dict[int, Reader] = {}
        self.to_actions = action_converter(spaces.actions)
        self.to_mask = mask_converter(spaces.actions)
        self.applied: Values = {}
        self.limit = options.get("limit")  # of evaluations

    @staticmethod
    def size_of_evaluation(
        make_env: EnvMaker,
        num_envs: int,
        episodes: int,
    ) -> int:
        """Return no more than a worker has, which can be made; some may play for nothing."""
        return min(num_envs, share_of(make_env.config))

    @classmethod
    def look(cls, make_env: EnvMaker) -> Spaces:
        """Take a first look, as ppo.envs.make.look does, at what the first worker will make."""
        seeds = [0] * share_of(make_env.config)
        with calling(make_env.spec.id, ConfigError):
            vector = cls.make(make_env, 0, seeds)
            try:
                has_masks = examine(vector, make_env.config)
            finally:
                with suppress(BaseException):
                    vector.env.close()
        return Spaces(make_env, vector.observation_space, vector.action_space, has_masks)

    def reset(self, row: int) -> None:
        columns = range(self.size)
        seeds = [self.worker.next_seed(column, True) for column in columns]
        index = self.first + self.worker.env_ids.start
        make_env = self.spaces.make_env
        self.worker.beat()
        self.vector = self.make(make_env, index, seeds)
        self._apply_attributes()
        self.worker.beat()
        self.vector.reset(seeds)
        self._begin(row, self.vector.present)

    def start_episode(self, row: int, column: int) -> None:
        """Begin episodes in all columns, which end together, when the first one is asked for."""
        if column == 0:
            self.reset(row)

    def replay(self, *about: Any) -> bool:
        """Episodes of a vector environment cannot be repeated one by one."""
        return False

    def step(self, t: int, actions: ndarray) -> None:
        """Step by actions (n, D): write the rewards of row t, and the observations of row t + 1."""
        self.worker.beat()
        vector = self.vector
        acting = vector.present.copy()
        self.tables["present"][t] = acting
        taken = self.to_actions(actions)
        taken = np.asarray(taken, self.spaces.actions.dtype)
        rewards, terminated, truncated = vector.step(taken)
        self.tables["rewards"][t] = rewards
        self.returns += rewards
        self.lengths += 1
        if limit := vector.limit or self.limit:
            truncated |= self.lengths >= limit
        truncated &= ~terminated
        ended = terminated | truncated
        self._write(t + 1, acting & ~ended)
        seeds: Seeds = [None] * self.size
        for column in np.flatnonzero(ended).tolist():
            last = None
            if truncated[column]:
                last = self._last(t, column)
            info = vector.last_info(column)
            total = float(self.returns[column])
            length = int(self.lengths[column])
            info[WHOLE_EPISODE] = total, length
            self.worker.end_episode(t, column, last, info)
            seeds[column] = self.worker.next_seed(column, True)
        if ended.any():
            self._apply_attributes()
            vector.restart(ended, seeds)
        begun = vector.present & (ended | ~acting)
        self._begin(t + 1, begun)

    def close(self) -> None:
        for env in getattr(self.vector, "copies", [self.vector.env]):
            with suppress(BaseException):
                env.close()

    def _last(self, t: int, column: int) -> dict[str, ndarray]:
        """Return a row of each table for the last observation of a truncated episode. Where a
        vector environment has none, the one before takes its place."""
        observation = self.vector.last_observation(column)
        if observation is not None:
            return self.readers[column](observation)
        before = {}
        for name, table in self.observed.items():
            before[name] = table[t, column]
        return before

    def _begin(self, row: int, begun: ndarray) -> None:
        """Write the first observations of episodes that begin in some columns (n,)."""
        self.tables["states"][row, begun] = 0
        self.returns[begun] = 0
        self.lengths[begun] = 0
        absent = ~self.vector.present
        for table in self.observed.values():
            table[row, absent] = 0
        if begun.any():
            for column in np.flatnonzero(begun).tolist():
                self.readers[column] = Reader(self.layout)
            self._write(row, begun)

    def _write(self, row: int, columns: ndarray) -> None:
        """Write the observations and masks of some columns (n,)."""
        vector = self.vector
        shown = vector.observations
        if self.layout.is_plain and isinstance(shown, ndarray):
            table = self.observed[NUMBERS][row]
            if shown.shape != table.shape:
                raise BadValue(f"its observations have the shape {shown.shape}, not {table.shape}")
            table[columns] = shown[columns]
        else:
            for column in np.flatnonzero(columns).tolist():
                observation = vector.observation(column)
                rows = self.readers[column](observation)
                for name, values in rows.items():
                    self.observed[name][row, column] = values
        if self.spaces.has_masks:
            masks = self.tables["action_masks"][row]
            for column in np.flatnonzero(columns).tolist():
                mask = vector.info(column).get(ACTION_MASK)
                masks[column] = self.to_mask(mask)

    def _apply_attributes(self) -> None:
        if self.worker.attributes != self.applied:
            self.vector.set(self.worker.attributes)
            self.applied = self.worker.attributes
