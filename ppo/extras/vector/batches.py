"""Environments that step together: one interface for vector environments of all kinds.

Vector environments differ in what they do where an episode ends. A Batch hides it: its step returns
what the actions led to, the last observation of an episode included, and restart the first
observations of new episodes. ppo.extras.vector.adapters chooses the class for one."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Space
from numpy import ndarray

from ppo.envs.episodes import set_attributes
from ppo.envs.errors import EnvironmentUnavailable, InvalidEnvOutput
from ppo.envs.infos import LAST_OBSERVATIONS, Infos
from ppo.envs.trees import find_device, map_arrays, to_arrays, to_numpy, with_rows
from ppo.envs.values import describe_value
from ppo.extras.checks.observations import check_results

if TYPE_CHECKING:
    import torch  # heavy

Step = tuple[Any, ndarray, ndarray, ndarray, Infos]
NOT_EXACT = (
    "this vector environment does not return the last observation of an episode: where one is "
    "truncated, the value of the observation before is used, which is not exact"
)


class Batch:
    """n environments that step together, each in its column.

    num_envs: n; observation_space, action_space: of one environment; present: (n,) bool, the
    columns whose next action counts, None if all do, always; note: a sentence for the user, or "",
    which may come with a step.

    Observations are arrays (n, ...), nested in dicts and tuples as the space is. Those that step
    returns keep their values until the next step, those of reset and restart, too."""

    def __init__(self, env: Any) -> None:
        """env: the vector environment, with the attributes of a gymnasium.vector.VectorEnv.

        Raises EnvironmentUnavailable if it lacks them."""
        self.env = env
        self.num_envs = int(find_attribute(env, "num_envs"))
        self.observation_space = find_attribute(env, "single_observation_space")
        self.action_space = find_attribute(env, "single_action_space")
        self.present: ndarray | None = None
        self.note = ""
        self.spec = getattr(env, "spec", None)
        self.metadata = getattr(env, "metadata", None) or {}
        self.render_mode = getattr(env, "render_mode", None)
        self.device: Any = None  # of torch tensors, in which it takes its actions

    def reset(self, seeds: Sequence[int]) -> tuple[Any, Infos]:
        """Begin an episode in every column. seeds: one for each, of 32 bits.

        A vector environment that takes one seed only is given the first. Raises
        InvalidEnvOutput."""
        raise NotImplementedError

    def step(self, actions: Any) -> Step:
        """Return what actions led to: observations, rewards, terminations, truncations, infos.

        actions: (n, ...), or a dict or tuple of such arrays, as gymnasium batches them. rewards:
        (n,) float64; terminations, truncations: (n,) bool, never both. Columns that ended must be
        restarted before the next step. Raises InvalidEnvOutput."""
        raise NotImplementedError

    def restart(self, ended: ndarray, seeds: Sequence[int]) -> tuple[Any, Infos]:
        """Begin new episodes in the columns ended (n,) bool, at least one of them.

        seeds: one for each of these columns, in order. Returns the observations of all columns,
        of which others are those of the last step, and infos. Raises InvalidEnvOutput."""
        raise NotImplementedError

    def set_training(self, attributes: Mapping[str, Any]) -> None:
        """Pass attributes to the vector environment's set_training, else set them by name on each
        environment that it steps, or on itself. Raises EnvironmentUnavailable as set_attributes
        does."""
        if hasattr(self.env, "set_attr") and not hasattr(self.env, "set_training"):
            for name, value in attributes.items():
                self.env.set_attr(name, value)
        else:
            set_attributes(self.env, attributes)

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()

    def _reset_envs(self, num_rows: int, **options: Any) -> tuple[Any, Infos]:
        """Reset the vector environment; return observations (num_rows, ...) and infos."""
        observations, infos = check_results("reset", self.env.reset(**options), 2)
        self.device = find_device(observations)
        return to_arrays(observations, self.observation_space, num_rows), infos

    def _step_envs(self, actions: Any) -> Step:
        """Step the vector environment and convert its results to numpy."""
        if self.device is not None:
            actions = to_tensors(actions, self.device)
        results = check_results("step", self.env.step(actions), 5)
        observations, rewards, terminations, truncations, infos = results
        rewards = self._column("rewards", rewards, np.float64)
        terminations = self._column("terminations", terminations, np.bool_)
        truncations = self._column("truncations", truncations, np.bool_) & ~terminations
        observations = to_arrays(observations, self.observation_space, self.num_envs)
        return observations, rewards, terminations, truncations, infos

    def _column(self, name: str, values: Any, dtype: type) -> ndarray:
        """Return values as a new array (n,)."""
        array = to_numpy(values)
        if array.shape != (self.num_envs,) or array.dtype.kind not in "biuf":
            raise InvalidEnvOutput(
                f"its {name} are {describe_value(array)}, not one for each of {self.num_envs} "
                "environments"
            )
        if dtype is np.bool_ and array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InvalidEnvOutput(f"its {name} are {describe_value(array)}, not all finite")
        return array.astype(dtype)


class MaskedReset(Batch):
    """A vector environment whose reset takes options={"reset_mask": columns}, so that everything is
    exact. Columns may be restarted before their episodes have ended.

    These are gymnasium's SyncVectorEnv and AsyncVectorEnv in any autoreset mode, and ale_py's
    AtariVectorEnv. The mask comes before their own autoreset, which never happens, or, in
    SAME_STEP, is replaced by a reset with our seed."""

    def __init__(self, env: Any, max_episode_steps: int | None = None) -> None:
        """max_episode_steps: truncate episodes of this length; None: only as the vector environment
        does."""
        super().__init__(env)
        self.max_episode_steps = max_episode_steps
        self.lengths = np.zeros(self.num_envs, np.int64)  # of the open episodes
        self.last: Any = None  # observations
        # Would a reset of some columns overwrite what step returned? gymnasium's attribute tells.
        self.reuses_memory = getattr(getattr(env, "unwrapped", env), "copy", False) is not True

    def reset(self, seeds: Sequence[int]) -> tuple[Any, Infos]:
        self.lengths[:] = 0
        self.last, infos = self._reset_all(seeds)
        return self.last, infos

    def step(self, actions: Any) -> Step:
        observations, rewards, terminations, truncations, infos = self._step_envs(actions)
        if self.reuses_memory:
            observations = map_arrays(np.array, observations)
        ended = terminations | truncations
        if ended.any():
            observations, _ = with_last_observations(
                observations, infos, ended, self.observation_space
            )
        self.lengths += 1
        if self.max_episode_steps:
            truncations |= (self.lengths >= self.max_episode_steps) & ~terminations
        self.last = observations
        return observations, rewards, terminations, truncations, infos

    def restart(self, ended: ndarray, seeds: Sequence[int]) -> tuple[Any, Infos]:
        rows, infos = self._reset_columns(ended, seeds)
        self.lengths[ended] = 0
        self.last = with_rows(self.last, ended, rows)
        return self.last, infos

    def _reset_all(self, seeds: Sequence[int]) -> tuple[Any, Infos]:
        return self._reset_envs(self.num_envs, seed=self._seeds(range(self.num_envs), seeds))

    def _reset_columns(self, ended: ndarray, seeds: Sequence[int]) -> tuple[Any, Infos]:
        """Reset the k columns ended; return their observations (k, ...), and infos (n, ...)."""
        own_seeds = self._seeds(np.flatnonzero(ended), seeds)
        options = {"reset_mask": np.array(ended)}
        observations, infos = self._reset_envs(self.num_envs, seed=own_seeds, options=options)
        return map_arrays(lambda array: array[ended], observations), infos

    def _seeds(self, columns: Iterable[int], seeds: Sequence[int]) -> Any:
        """Return the seeds of some columns as the vector environment takes them: with None for the
        others."""
        all_seeds: list[int | None] = [None] * self.num_envs
        for i, seed in zip(columns, seeds, strict=True):
            all_seeds[i] = int(seed)
        return all_seeds


class AtariVector(MaskedReset):
    """ale_py's AtariVectorEnv, which takes an array of signed seeds, only for the columns reset."""

    def __init__(self, env: Any, max_episode_steps: int | None = None) -> None:
        super().__init__(env, max_episode_steps)
        self.reuses_memory = False

    def _seeds(self, columns: Iterable[int], seeds: Sequence[int]) -> ndarray:
        return signed_seeds(seeds)


class SameStep(Batch):
    """A vector environment that begins the next episode in the step that ends one, as GPU
    simulators do.

    The last observations are in its infos, as gymnasium's final_obs or ManiSkill's
    final_observation: arrays (n, ...), or a list with one for each column. Where none is given, the
    observation before the step takes its place, and note says so at the first truncation. reset
    gives the vector environment the first seed; later episodes have none."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.before: Any = None  # the observations before a step; None once last ones are given
        self.first: Any = None  # observations of which some begin episodes
        self.first_infos: Infos = {}

    def reset(self, seeds: Sequence[int]) -> tuple[Any, Infos]:
        self.first, self.first_infos = self._reset_envs(self.num_envs, seed=int(seeds[0]))
        self.before = map_arrays(np.array, self.first)
        return self.first, self.first_infos

    def step(self, actions: Any) -> Step:
        observations, rewards, terminations, truncations, infos = self._step_envs(actions)
        self.first = observations
        self.first_infos = infos
        ended = terminations | truncations
        if ended.any():
            observations, is_known = with_last_observations(
                observations, infos, ended, self.observation_space
            )
            observations = self._fill_in(observations, ended & ~is_known, truncations)
        if self.before is not None:
            self.before = map_arrays(np.array, self.first)
        return observations, rewards, terminations, truncations, infos

    def restart(self, ended: ndarray, seeds: Sequence[int]) -> tuple[Any, Infos]:
        infos = {key: value for key, value in self.first_infos.items() if "final_" not in str(key)}
        return self.first, infos

    def _fill_in(self, observations: Any, missing: ndarray, truncations: ndarray) -> Any:
        """Return observations with those before the step in the columns missing (n,) bool."""
        if not missing.any():
            self.before = None  # a copy of each step's observations need not be kept any more
            return observations
        if self.before is None:
            raise InvalidEnvOutput(
                f"its step gave no last observation of columns {np.flatnonzero(missing).tolist()}, "
                "although earlier steps did"
            )
        if (missing & truncations).any():
            self.note = NOT_EXACT
        rows = map_arrays(lambda array: array[missing], self.before)
        return with_rows(observations, missing, rows)


class NextStep(Batch):
    """A vector environment that resets a column in the step after an episode's end, and cannot be
    told to.

    These are gymnasium's vector entry points. After restart, present is False in the columns that
    ended: the next step ignores their actions, gives them reward 0 and their first observations,
    and present is True again. reset gives the vector environment the first seed; later episodes
    have none."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.present: ndarray = np.ones(self.num_envs, np.bool_)
        self.last: Any = None  # observations

    def reset(self, seeds: Sequence[int]) -> tuple[Any, Infos]:
        self.present = np.ones(self.num_envs, np.bool_)
        self.last, infos = self._reset_envs(self.num_envs, seed=int(seeds[0]))
        return self.last, infos

    def step(self, actions: Any) -> Step:
        self.last, rewards, terminations, truncations, infos = self._step_envs(actions)
        rewards[~self.present] = 0
        terminations &= self.present
        truncations &= self.present
        self.present = np.ones(self.num_envs, np.bool_)
        return self.last, rewards, terminations, truncations, infos

    def restart(self, ended: ndarray, seeds: Sequence[int]) -> tuple[Any, Infos]:
        self.present = ~ended
        return self.last, {}


def find_attribute(env: Any, name: str) -> Any:
    """Return an attribute of a vector environment, or of what its wrappers hide.

    Raises EnvironmentUnavailable if there is none."""
    for layer in (env, getattr(env, "unwrapped", env)):
        if hasattr(layer, name):
            return getattr(layer, name)
    raise EnvironmentUnavailable(
        f"{type(env).__name__} has no {name}: give a batch the attributes of a "
        "gymnasium.vector.VectorEnv"
    )


def signed_seeds(seeds: Sequence[int]) -> ndarray:
    """Return seeds of 32 bits as numbers of 31 bits, for vector environments that take signed
    integers."""
    return np.array([int(seed) & 0x7FFFFFFF for seed in seeds], np.int64)


def with_last_observations(
    observations: Any, infos: Infos, ended: ndarray, space: Space[Any]
) -> tuple[Any, ndarray]:
    """Return observations with those in infos of the columns ended, and (n,) bool where found."""
    for key in LAST_OBSERVATIONS:
        if infos.get(key) is not None:
            break
    else:
        return observations, np.zeros_like(ended)
    last = infos[key]
    is_list = isinstance(last, list) or getattr(getattr(last, "dtype", None), "kind", "") == "O"
    is_known = ended
    if f"_{key}" in infos:
        is_known = ended & to_numpy(infos[f"_{key}"]).astype(np.bool_)
    if is_list:
        is_known = is_known & np.array([one is not None for one in last])
        found = [last[i] for i in np.flatnonzero(is_known)]
        if not found:
            return observations, is_known
        rows = map_arrays(lambda *parts: np.stack([*map(to_numpy, parts)]), *found)
    else:
        arrays = to_arrays(last, space, len(ended))
        rows = map_arrays(lambda array: array[is_known], arrays)
    return with_rows(observations, is_known, rows), is_known


def to_tensors(actions: Any, device: "torch.device") -> Any:
    """Return nested actions as torch tensors on a device."""
    torch = sys.modules["torch"]  # which the vector environment has imported
    return map_arrays(lambda array: torch.as_tensor(array, device=device), actions)
