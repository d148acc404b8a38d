"""Vector environments of gymnasium, and others like them: many environments step in one call.

A class or function with the parameter num_envs makes one; a worker's columns are its environments.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from numpy import ndarray

from ppo.config import Config
from ppo.envs.episodes import WHOLE_EPISODE, Values, set_attributes
from ppo.envs.make import EnvMaker, Spaces, calling, check_finite, takes
from ppo.envs.observations import NUMBERS, Layout, Reader
from ppo.envs.spaces import ACTION_MASK, action_converter, mask_converter
from ppo.envs.worker import Worker
from ppo.errors import BadValue, ConfigError
from ppo.process import available_cores

LAST_OBSERVATIONS = ("final_obs", "final_observation")  # keys of infos: gymnasium's, ManiSkill's
Results = tuple[Any, ndarray, ndarray, ndarray, Values]


class MaskedReset:
    """A vector environment that is told which of its environments to reset, so that each episode
    has a seed of its own: gymnasium's SyncVectorEnv and AsyncVectorEnv, whose own autoreset is then
    without effect, and others whose autoreset is off. limit: steps after which an episode is
    truncated."""

    is_whole = True  # observations are arrays of all environments

    def __init__(self, env: Any, limit: int | None = None) -> None:
        self.env = env
        self.limit = limit
        self.num_envs = int(env.num_envs)
        self.observation_space = env.single_observation_space
        self.action_space = env.single_action_space
        self.device: Any = None  # of torch tensors, if it takes and returns these
        self.lengths = np.zeros(self.num_envs, np.int64)  # of open episodes
        self.present = np.ones(self.num_envs, np.bool_)  # where the next action counts

    def reset(self, seeds: Sequence[int]) -> tuple[Any, Values]:
        """Begin an episode in each environment; return observations (n, ...) and infos."""
        self.lengths[:] = 0
        return self._reset(seed=[*seeds])

    def step(self, actions: Any) -> Results:
        """Return observations (n, ...), rewards (n,), terminations (n,), truncations (n,), which
        are never both, and infos. Raises BadValue for results of other sizes."""
        if self.device is not None:
            import torch

            actions = torch.as_tensor(actions, device=self.device)
        results = self.env.step(actions)
        if not isinstance(results, tuple) or len(results) != 5:
            raise BadValue(f"its step has returned {results!r:.200}, not five results")
        observations, *others, infos = results
        rewards, terminations, truncations = [to_numpy(x) for x in others]
        found = {"rewards": rewards, "terminations": terminations, "truncations": truncations}
        for name, values in found.items():
            if values.shape != (self.num_envs,) or values.dtype.kind not in "biuf":
                raise BadValue(f"its {name} are {values!r:.200}, not {self.num_envs} numbers")
        terminations = terminations.astype(np.bool_)
        truncations = truncations.astype(np.bool_)
        self.lengths += 1
        if self.limit:
            truncations |= self.lengths >= self.limit
        return (
            mapped(to_numpy, observations),
            rewards,
            terminations,
            truncations & ~terminations,
            infos,
        )

    def restart(self, ended: ndarray, seeds: Sequence[int]) -> tuple[Any, Values]:
        """Begin episodes in the environments that ended (n,); return observations (n, ...), of
        which only their rows count, and infos."""
        self.lengths[ended] = 0
        own: list[int | None] = [None] * self.num_envs
        for column, seed in zip(np.flatnonzero(ended), seeds, strict=True):
            own[column] = seed
        return self._reset(seed=own, options={"reset_mask": ended.copy()})

    def observation(self, observations: Any, column: int) -> Any:
        """Return the observation of one environment."""
        return column_of(observations, column)

    def info(self, infos: Any, column: int) -> dict[str, Any]:
        """Return the info of one environment, the last one of an episode where it has ended."""
        return info_of(infos.get("final_info") or infos, column)

    def set(self, attributes: Values) -> None:
        """Give all environments attributes."""
        if hasattr(self.env, "set_attr") and not hasattr(self.env, "set_training"):
            for name, value in attributes.items():
                self.env.set_attr(name, value)
        else:
            set_attributes(self.env, attributes)

    def _reset(self, **options: Any) -> tuple[Any, Values]:
        observations, infos = self.env.reset(**options)
        mapped(self._find_device, observations)
        return mapped(to_numpy, observations), infos

    def _find_device(self, array: Any) -> None:
        self.device = getattr(array, "device", None) if hasattr(array, "numpy") else None


class SameStep(MaskedReset):
    """A vector environment that begins the next episode in the step that ends one, as simulators on
    GPUs do. It is given the first seed; later episodes have none."""

    def reset(self, seeds: Sequence[int]) -> tuple[Any, Values]:
        return self._reset(seed=seeds[0])

    def step(self, actions: Any) -> Results:
        results = super().step(actions)
        self.first = results[0]
        self.infos = {key: x for key, x in results[-1].items() if "final_" not in str(key)}
        return results

    def restart(self, ended: ndarray, seeds: Sequence[int]) -> tuple[Any, Values]:
        return self.first, self.infos


class NextStep(MaskedReset):
    """A vector environment that begins the next episode in a step of its own after the one that
    ends an episode, which ignores the action: there is nothing to learn from in such a step. It is
    given the first seed; later episodes have none."""

    def reset(self, seeds: Sequence[int]) -> tuple[Any, Values]:
        self.present = np.ones(self.num_envs, np.bool_)
        return self._reset(seed=seeds[0])

    def step(self, actions: Any) -> Results:
        self.last, rewards, terminations, truncations, infos = super().step(actions)
        here = self.present
        self.present = np.ones(self.num_envs, np.bool_)
        return self.last, rewards * here, terminations & here, truncations & here, infos

    def restart(self, ended: ndarray, seeds: Sequence[int]) -> tuple[Any, Values]:
        self.present = ~ended
        return self.last, {}


def adapt(env: Any, limit: int | None) -> MaskedReset:
    """Return a vector environment, as its autoreset mode needs. Raises ConfigError."""
    if isinstance(env, MaskedReset):
        return env
    inner = getattr(env, "unwrapped", env)
    mode = getattr(env, "metadata", {}).get("autoreset_mode")
    mode = str(getattr(mode, "value", mode)).replace("_", "").lower()
    is_known = isinstance(inner, (SyncVectorEnv, AsyncVectorEnv))
    if is_known and limit:
        inner.set_attr("_max_episode_steps", limit)  # of its environments' own time limits
    if is_known or mode == "disabled":
        return MaskedReset(env, limit)
    if limit:
        raise ConfigError(
            f"--max_episode_steps={limit}: {type(inner).__name__} cannot be told to reset an "
            "environment: give the limit to the environment itself"
        )
    return NextStep(env) if mode == "nextstep" else SameStep(env)


def make_vector(make_env: EnvMaker, index: int, seeds: Sequence[int]) -> MaskedReset:
    """Make a vector environment of as many environments as there are seeds. index: the number of
    the first one in the run. Raises ConfigError for flags that it cannot obey."""
    config, spec = make_env.config, make_env.spec
    if config.wrapper or config.frame_skip not in ("auto", 1):
        raise ConfigError(
            f"--wrapper and --frame_skip: {spec.id} steps several environments at once: leave them "
            "out, or do it where these are made"
        )
    limit = config.max_episode_steps
    offered = {"index": index, "seeds": [*seeds], "max_episode_steps": limit}
    given = {name: x for name, x in offered.items() if takes(spec.entry_point, name)}
    make: Any = spec.entry_point
    made = make(**{**given, **spec.kwargs, "num_envs": len(seeds)})
    if not (isinstance(made, MaskedReset) or hasattr(made, "single_observation_space")):
        raise ConfigError(
            f"--env_name={spec.id} has made {made!r:.99}, not a gymnasium.vector.VectorEnv: of "
            "several agents, give the PettingZoo environment itself"
        )
    if made.num_envs != len(seeds):
        found = f"has made {made.num_envs} environments for num_envs={len(seeds)}"
        raise ConfigError(f"--env_name={spec.id} {found}: each worker has its share of --num_envs")
    return adapt(made, None if "max_episode_steps" in given else limit)


def share_of(config: Config) -> int:
    """Return how many environments the first worker of a run makes."""
    workers = available_cores() if config.num_workers == "auto" else config.num_workers
    return max(1, config.num_envs // max(1, workers))


class VectorColumns:
    """Step a vector environment; see ppo.envs.columns.SingleColumns. It is made at the first reset,
    for some have their seeds where they are made."""

    def __init__(
        self,
        worker: Worker,
        spaces: Spaces,
        first: int = 0,
        limit: Any = None,
        render_mode: Any = None,
    ) -> None:
        if render_mode:
            raise ConfigError("a vector environment is not shown: choose another by --env_name")
        self.worker = worker
        self.spaces = spaces
        self.first = first
        self.tables = worker.tables
        self.size = len(worker.env_ids)
        self.envs: list[Any] = [None]  # the vector environment
        self.returns = np.zeros(self.size)
        self.lengths = np.zeros(self.size, np.int64)
        self.readers = [Reader(spaces.layout) for _ in range(self.size)]
        self.to_actions = action_converter(spaces.actions)
        self.to_mask = mask_converter(spaces.actions)
        self.applied: Values = {}

    make = staticmethod(make_vector)

    @staticmethod
    def size_of_evaluation(make_env: EnvMaker, num_envs: int, episodes: int) -> int:
        """Return no more than a worker has, which can be made; some may play for nothing."""
        return min(num_envs, share_of(make_env.config))

    @classmethod
    def look(cls, make_env: EnvMaker) -> Spaces:
        """Take a first look, as ppo.envs.make.look does, at what the first worker will make."""
        seeds = [0] * share_of(make_env.config)
        with calling(make_env.spec.id, ConfigError):
            vector = cls.make(make_env, 0, seeds)
            try:
                observes, acts = vector.observation_space, vector.action_space
                read = Reader(Layout(observes, make_env.config))
                observations, infos = vector.reset(seeds)
                first = int(np.flatnonzero(vector.present)[0])
                check_finite(read(vector.observation(observations, first)), "it")
                has_masks = ACTION_MASK in vector.info(infos, first)
                if not has_masks:
                    acts.seed(0)
                    taken = np.array([acts.sample()] * vector.num_envs, acts.dtype)
                    observations, rewards, *_ = vector.step(taken)
                    shown = read(vector.observation(observations, first))
                    check_finite({**shown, "rewards": rewards}, "it")
            finally:
                with suppress(BaseException):
                    vector.env.close()
        return Spaces(make_env, observes, acts, has_masks)

    def reset(self, row: int) -> None:
        seeds = [self.worker.next_seed(column, True) for column in range(self.size)]
        if self.envs == [None]:
            self.worker.beat()
            index = self.first + self.worker.env_ids.start
            self.vector = self.make(self.spaces.make_env, index, seeds)
            self.envs = [self.vector.env]
        self._apply_attributes()
        self.worker.beat()
        observations, infos = self.vector.reset(seeds)
        self._begin(row, self.vector.present, observations, infos)

    def start_episode(self, row: int, column: int, is_whole: bool = True) -> None:
        """Begin episodes in all columns, which end together, when the first one is asked for."""
        if column == 0:
            self.reset(row)

    def replay(self, *about: Any) -> bool:
        """Episodes of a vector environment cannot be repeated one by one."""
        return False

    def step(self, t: int, actions: ndarray) -> None:
        """Step by actions (n, D): write the rewards of row t, and the observations of row t + 1."""
        self.worker.beat()
        acting = self.vector.present.copy()
        self.tables["present"][t] = acting
        taken = np.asarray(self.to_actions(actions), self.spaces.actions.dtype)
        observations, rewards, terminated, truncated, infos = self.vector.step(taken)
        self.tables["rewards"][t] = rewards
        self.returns += rewards
        self.lengths += 1
        ended = terminated | truncated
        self._write(t + 1, acting & ~ended, observations, infos)
        for column in np.flatnonzero(ended).tolist():
            last = self._last(t, column, observations, infos) if truncated[column] else None
            info = self.vector.info(infos, column)
            info[WHOLE_EPISODE] = (float(self.returns[column]), int(self.lengths[column]))
            self.worker.end_episode(t, column, last, info)
        if ended.any():
            seeds = [self.worker.next_seed(x, True) for x in np.flatnonzero(ended).tolist()]
            self._apply_attributes()
            observations, infos = self.vector.restart(ended, seeds)
        begun = self.vector.present & (ended | ~acting)
        self._begin(t + 1, begun, observations, infos)

    def close(self) -> None:
        for env in self.envs:
            with suppress(BaseException):
                env.close()

    def _last(self, t: int, column: int, observations: Any, infos: Values) -> dict[str, ndarray]:
        """Return a row of each table for the last observation of a truncated episode. Where a
        vector environment has none, the one before takes its place."""
        found = None
        if not isinstance(self.vector, SameStep):
            found = self.vector.observation(observations, column)
        for key in LAST_OBSERVATIONS if self.vector.is_whole else ():
            if infos.get(key) is not None:
                found = column_of(infos[key], column)
        if found is None:
            return {name: self.tables[name][t, column] for name in self.spaces.layout.tables}
        return self.readers[column](found)

    def _begin(self, row: int, begun: ndarray, observations: Any, infos: Values) -> None:
        """Write the first observations of episodes that begin in some columns (n,)."""
        self.tables["states"][row, begun] = 0
        self.returns[begun] = 0
        self.lengths[begun] = 0
        for column in np.flatnonzero(begun).tolist():
            self.readers[column] = Reader(self.spaces.layout)
        for name in self.spaces.layout.tables:
            self.tables[name][row, ~self.vector.present] = 0
        if begun.any():
            self._write(row, begun, observations, infos)

    def _write(self, row: int, columns: ndarray, observations: Any, infos: Values) -> None:
        tables = self.tables
        if self.spaces.layout.is_plain and self.vector.is_whole:
            shape = (self.size, *self.spaces.observations.shape)
            if observations.shape != shape:
                raise BadValue(f"its observations have the shape {observations.shape}, not {shape}")
            tables[NUMBERS][row, columns] = observations[columns]
        else:
            for column in np.flatnonzero(columns).tolist():
                rows = self.readers[column](self.vector.observation(observations, column))
                for name, values in rows.items():
                    tables[name][row, column] = values
        if self.spaces.has_masks:
            for column in np.flatnonzero(columns).tolist():
                mask = self.vector.info(infos, column).get(ACTION_MASK)
                tables["action_masks"][row, column] = self.to_mask(mask)

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


def column_of(observations: Any, column: int) -> Any:
    """Return the observation of one environment, None if there is none."""
    return mapped(lambda x: x[column], mapped(to_numpy, observations))


def to_numpy(value: Any) -> ndarray:
    """Return an array, also of a tensor on any device; a copy, for the next step may change it."""
    return np.array(value.numpy(force=True) if hasattr(value, "numpy") else value)


def info_of(infos: Values, column: int) -> dict[str, Any]:
    """Return the info of one environment."""
    found: dict[str, Any] = {}
    for key, value in infos.items():
        mask = infos.get(f"_{key}")
        if str(key).startswith("_") or (mask is not None and not mask[column]):
            continue
        if isinstance(value, Mapping):
            found[key] = info_of(value, column)
        elif hasattr(value, "__len__") and not isinstance(value, str):
            found[key] = to_numpy(value)[column]
    return found
