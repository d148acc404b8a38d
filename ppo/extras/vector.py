"""Vector environments of gymnasium, and others like them: many environments step in one call.

A class or function with the parameter num_envs makes one; a worker's columns are its environments.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from numpy import ndarray

from ppo.config import Config
from ppo.envs.columns import SingleColumns
from ppo.envs.episodes import WHOLE_EPISODE, Values, set_attributes
from ppo.envs.make import EnvMaker, Spaces, calling, check_finite, takes
from ppo.envs.observations import NUMBERS, Layout, Reader
from ppo.envs.spaces import ACTION_MASK, action_converter, mask_converter
from ppo.envs.worker import Worker
from ppo.errors import BadValue, ConfigError

LAST_OBSERVATIONS = ("final_obs", "final_observation")  # keys of infos: gymnasium's, ManiSkill's
Info = dict[str, Any]
Seeds = list[Any]  # of each environment, None where the episode goes on
Results = tuple[ndarray, ndarray, ndarray]  # rewards (n,), terminations (n,), truncations (n,)


class MaskedReset:
    """A vector environment that is told which of its environments to reset, so that each episode
    has a seed of its own: gymnasium's SyncVectorEnv and AsyncVectorEnv, whose own autoreset is then
    without effect, and others whose autoreset is off. limit: steps after which an episode is
    truncated."""

    shows_last = True  # the step that ends an episode returns its last observation
    device: Any = None  # of torch tensors, if it takes and returns these
    observations: Any  # (n, ...), of the last reset or step
    infos: Any

    def __init__(self, env: Any, limit: int | None = None) -> None:
        self.env = env
        self.limit = limit
        self.num_envs = int(env.num_envs)
        self.observation_space = env.single_observation_space
        self.action_space = env.single_action_space
        self.present = np.ones(self.num_envs, bool)  # where the next action counts

    def reset(self, seeds: Seeds) -> None:
        """Begin an episode in each environment, once."""
        self._reset(seed=seeds)

    def step(self, actions: Any) -> Results:
        """Return rewards, terminations and truncations. Raises BadValue for results of other
        sizes."""
        if self.device is not None:
            import torch

            actions = torch.as_tensor(actions, device=self.device)
        results = self.env.step(actions)
        if len(results) != 5:
            raise BadValue(f"its step has returned {results!r:.200}, not five results")
        observations, paid, terminated, truncated, self.infos = results
        self.observations = mapped(to_numpy, observations)
        rewards = self._numbers("rewards", paid)
        terminations = self._numbers("terminations", terminated).astype(bool)
        truncations = self._numbers("truncations", truncated).astype(bool)
        return rewards, terminations, truncations

    def restart(self, ended: ndarray, seeds: Seeds) -> None:
        """Begin episodes in the environments that ended (n,), whose rows are all that counts."""
        self._reset(seed=seeds, options={"reset_mask": ended})

    def observation(self, column: int) -> Any:
        """Return the observation of one environment."""
        return column_of(self.observations, column)

    def last_observation(self, column: int) -> Any:
        """Return the last observation of an episode that has ended, None if it is unknown."""
        for key in LAST_OBSERVATIONS:
            given = self.infos.get(key)
            if given is not None:
                arrays = mapped(to_numpy, given)
                return column_of(arrays, column)
        return self.observation(column) if self.shows_last else None

    def info(self, column: int) -> Info:
        """Return the info of one environment."""
        return info_of(self.infos, column)

    def last_info(self, column: int) -> Info:
        """Return the last info of an episode that has ended."""
        last = self.infos.get("final_info")
        return info_of(last or self.infos, column)

    def set(self, attributes: Values) -> None:
        """Give all environments attributes."""
        has_set_attr = hasattr(self.env, "set_attr")
        if has_set_attr and not hasattr(self.env, "set_training"):
            for name, value in attributes.items():
                self.env.set_attr(name, value)
        else:
            set_attributes(self.env, attributes)

    def _reset(self, **options: Any) -> None:
        observations, self.infos = self.env.reset(**options)
        mapped(self._find_device, observations)
        self.observations = mapped(to_numpy, observations)

    def _find_device(self, array: Any) -> None:
        if hasattr(array, "numpy"):
            self.device = array.device

    def _numbers(self, name: str, values: Any) -> ndarray:
        array = to_numpy(values)
        is_numeric = array.dtype.kind in "biuf"
        if array.shape != (self.num_envs,) or not is_numeric:
            raise BadValue(f"its {name} are {array!r:.200}, not {self.num_envs} numbers")
        return array


class SameStep(MaskedReset):
    """A vector environment that begins the next episode in the step that ends one, as simulators on
    GPUs do. It is given the first seed; later episodes have none."""

    shows_last = False

    def reset(self, seeds: Seeds) -> None:
        self._reset(seed=seeds[0])

    def restart(self, ended: ndarray, seeds: Seeds) -> None:
        """They have begun."""


class NextStep(MaskedReset):
    """A vector environment that begins the next episode in a step of its own after the one that
    ends an episode, which ignores the action: there is nothing to learn from in such a step. It is
    given the first seed; later episodes have none."""

    def reset(self, seeds: Seeds) -> None:
        self._reset(seed=seeds[0])

    def step(self, actions: Any) -> Results:
        rewards, terminations, truncations = super().step(actions)
        here = self.present
        self.present = np.ones(self.num_envs, bool)
        return rewards * here, terminations & here, truncations & here

    def restart(self, ended: ndarray, seeds: Seeds) -> None:
        self.present = ~ended


def adapt(env: Any, limit: int | None) -> MaskedReset:
    """Return a vector environment, as its autoreset mode needs. Raises ConfigError."""
    if isinstance(env, MaskedReset):
        return env
    kind = type(getattr(env, "unwrapped", env))
    metadata = getattr(env, "metadata", {})
    mode = str(metadata.get("autoreset_mode")).lower()
    is_told = issubclass(kind, (SyncVectorEnv, AsyncVectorEnv))
    if is_told or "disabled" in mode:
        return MaskedReset(env, limit)
    if limit:
        raise ConfigError(
            f"--max_episode_steps={limit}: {kind.__name__} cannot be told to reset an "
            "environment: give the limit to the environment itself"
        )
    return NextStep(env) if "next" in mode else SameStep(env)


def make_vector(make_env: EnvMaker, index: int, seeds: Seeds) -> MaskedReset:
    """Make a vector environment of as many environments as there are seeds. index: the number of
    the first one in the run. Raises ConfigError for flags that it cannot obey."""
    config, spec = make_env.config, make_env.spec
    is_skipping = config.frame_skip not in ("auto", 1)
    if config.wrapper or is_skipping:
        raise ConfigError(
            f"--wrapper and --frame_skip: {spec.id} steps several environments at once: leave them "
            "out, or do it where these are made"
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
    if getattr(made, "num_envs", None) != count:
        raise ConfigError(f"--env_name={spec.id} has not made a vector environment of num_envs")
    return adapt(made, limit)


def examine(vector: MaskedReset, config: Config) -> bool:
    """Reset and, if all actions are allowed, step; return whether infos have action masks."""
    acts = vector.action_space
    read = Reader(Layout(vector.observation_space, config))
    vector.reset([0])
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


class VectorColumns:
    """Step a vector environment; see ppo.envs.columns.SingleColumns. It is made at the reset, which
    comes once, for some have their seeds where they are made."""

    make = staticmethod(make_vector)
    size_of_evaluation = staticmethod(SingleColumns.size_of_evaluation)
    envs = (None,)  # there is none to show

    def __init__(self, worker: Worker, spaces: Spaces, first: int = 0, **options: Any) -> None:
        if options.get("render_mode"):
            raise ConfigError("a vector environment is not shown: choose another by --env_name")
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

    @classmethod
    def look(cls, make_env: EnvMaker) -> Spaces:
        """Take a first look, as ppo.envs.make.look does."""
        with calling(make_env.spec.id, ConfigError):
            vector = cls.make(make_env, 0, [0])
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
        if vector.limit:
            truncated |= self.lengths >= vector.limit
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
        with suppress(BaseException):
            self.vector.env.close()

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


def mapped(function: Any, value: Any) -> Any:
    """Return an observation, with a function applied to each of its arrays."""
    if isinstance(value, Mapping):
        return {key: mapped(function, part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(mapped(function, part) for part in value)
    return function(value)


def column_of(arrays: Any, column: int) -> Any:
    """Return the observation of one environment."""
    return mapped(lambda array: array[column], arrays)


def to_numpy(value: Any) -> ndarray:
    """Return an array, also of a tensor on any device; a copy, for the next step may change it."""
    if hasattr(value, "numpy"):
        value = value.numpy(force=True)
    return np.array(value)


def info_of(infos: Values, column: int) -> Info:
    """Return the info of one environment."""
    found: Info = {}
    for key, value in infos.items():
        mask = infos.get(f"_{key}")
        is_absent = mask is not None and not mask[column]
        if is_absent or key.startswith("_"):
            continue
        if isinstance(value, Mapping):
            found[key] = info_of(value, column)
        elif hasattr(value, "__len__") and not isinstance(value, str):
            found[key] = to_numpy(value)[column]
    return found
