"""Vector environments that begin episodes in different ways, behind the methods of one.

gymnasium's disabled, same-step and next-step autoreset."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from numpy import ndarray

from ppo.envs.episodes import Values, set_attributes
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
            raise BadValue(f"its step returned {results!r:.200}, not five results")
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
    inner = getattr(env, "unwrapped", env)
    metadata = getattr(env, "metadata", {})
    mode = str(metadata.get("autoreset_mode")).lower()
    is_told = isinstance(inner, (SyncVectorEnv, AsyncVectorEnv))
    if is_told and limit:
        inner.set_attr("_max_episode_steps", limit)  # of its environments' own time limits
    if is_told or "disabled" in mode:
        return MaskedReset(env, limit)
    if limit:
        raise ConfigError(
            f"--max_episode_steps={limit}: {type(inner).__name__} cannot reset a single "
            "environment: set the limit in the environment itself"
        )
    return NextStep(env) if "next" in mode else SameStep(env)


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
