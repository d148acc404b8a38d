"""Environments that step together: one interface for the worlds that come in batches.

Worlds differ in what they do where an episode ends. A Batch hides it: its step returns what the
actions led to, the last observation of an episode included, and restart the first observations of
new episodes. adapt chooses the class for a world."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from numpy import ndarray

from ppo.envs.arrays import (
    find_device,
    malformed,
    map_arrays,
    to_arrays,
    to_numpy,
    to_tensors,
    with_rows,
)
from ppo.envs.checks import MAX_FLOAT32, convert, describe_value
from ppo.envs.episodes import apply_task_params
from ppo.envs.errors import EnvironmentUnavailable, InvalidEnvOutput

Infos = dict[str, Any]  # of all columns: an array (n, ...) by key
Step = tuple[Any, ndarray, ndarray, ndarray, Infos]

LAST_OBSERVATIONS = ("final_obs", "final_observation")  # names in the infos of SAME_STEP
NOT_OF_A_COLUMN = {*LAST_OBSERVATIONS, "final_info", "env_id", "players"}
NO_LIMIT = 2**31 - 1  # what EnvPool's max_episode_steps is for environments without one
NOT_EXACT = (
    "this world does not return the last observation of an episode: where one is truncated, the "
    "value of the observation before is used, which is not exact"
)


class Batch:
    """n environments that step together, each in its column.

    num_envs: n; observation_space, action_space: of one environment; present: (n,) bool, the
    columns whose next action counts, None if all do, always; can_restart: whether restart may be
    called for columns whose episodes have not ended; note: a sentence for the user, or "", which
    may come with a step.

    Observations are arrays (n, ...), nested in dicts and tuples as the space is. Those that step
    returns keep their values until the next step, those of reset and restart, too."""

    def __init__(self, env) -> None:
        """env: the world, with the attributes of a gymnasium.vector.VectorEnv.

        Raises EnvironmentUnavailable if it lacks them."""
        self.env = env
        self.num_envs = int(find_attribute(env, "num_envs"))
        self.observation_space = find_attribute(env, "single_observation_space")
        self.action_space = find_attribute(env, "single_action_space")
        self.present: ndarray | None = None
        self.can_restart = False
        self.note = ""
        self.spec = getattr(env, "spec", None)
        self.metadata = getattr(env, "metadata", None) or {}
        self.render_mode = getattr(env, "render_mode", None)
        self.device: Any = None  # of a world of torch tensors, which takes its actions as tensors

    def reset(self, seeds: Sequence[int]) -> tuple[Any, Infos]:
        """Begin an episode in every column. seeds: one for each, of 32 bits.

        A world that takes one seed only is given the first. Raises InvalidEnvOutput."""
        raise NotImplementedError

    def step(self, actions) -> Step:
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

    def set_training(self, task_params: Mapping[str, Any]) -> None:
        """Pass task_params to the world's set_training, else set them by name on each environment
        that it steps, or on itself. Raises EnvironmentUnavailable as apply_task_params does."""
        if hasattr(self.env, "set_attr") and not hasattr(self.env, "set_training"):
            for name, value in task_params.items():
                self.env.set_attr(name, value)
        else:
            apply_task_params(self.env, task_params)

    def render(self):
        return self.env.render()

    def close(self) -> None:
        self.env.close()

    def _reset_world(self, num_rows: int, **options) -> tuple[Any, Infos]:
        """Reset the world; return observations (num_rows, ...) and infos."""
        result = self.env.reset(**options)
        try:
            observations, infos = result
        except (TypeError, ValueError):
            infos = None
        if not isinstance(infos, dict):
            raise InvalidEnvOutput(
                f"its reset returned {describe_value(result)}, which is not (observations, infos)"
            )
        self.device = find_device(observations)
        return to_arrays(observations, self.observation_space, num_rows), infos

    def _step_world(self, actions) -> Step:
        """Step the world and convert its results to numpy."""
        if self.device is not None:
            actions = to_tensors(actions, self.device)
        result: Any = self.env.step(actions)
        try:
            observations, rewards, terminations, truncations, infos = result
        except (TypeError, ValueError):
            infos = None
        if not isinstance(infos, dict):
            raise InvalidEnvOutput(
                f"its step returned {describe_value(result)}, which is not five results ending in "
                "a dict"
            )
        rewards = self._column("rewards", rewards, np.float64)
        terminations = self._column("terminations", terminations, np.bool_)
        truncations = self._column("truncations", truncations, np.bool_) & ~terminations
        observations = to_arrays(observations, self.observation_space, self.num_envs)
        return observations, rewards, terminations, truncations, infos

    def _column(self, name: str, values, dtype) -> ndarray:
        """Return values as a new array (n,)."""
        array = to_numpy(values)
        if array.shape != (self.num_envs,) or array.dtype.kind not in "biuf":
            raise InvalidEnvOutput(
                f"its {name} are {describe_value(array)}, not one for each of {self.num_envs} "
                "environments"
            )
        return array.astype(dtype)


class MaskedReset(Batch):
    """A world whose reset takes options={"reset_mask": columns}, so that everything is exact.

    These are gymnasium's SyncVectorEnv and AsyncVectorEnv in any autoreset mode, and ale_py's
    AtariVectorEnv. The mask comes before their own autoreset, which never happens, or, in
    SAME_STEP, is replaced by a reset with our seed."""

    def __init__(self, env, max_episode_steps: int | None = None) -> None:
        """max_episode_steps: truncate episodes of this length; None: only as the world does."""
        super().__init__(env)
        self.can_restart = True
        self.max_episode_steps = max_episode_steps
        self.lengths = np.zeros(self.num_envs, np.int64)  # of the open episodes
        self.last: Any = None  # observations
        # Would a reset of some columns overwrite what step returned? gymnasium's attribute tells.
        self.reuses_memory = getattr(getattr(env, "unwrapped", env), "copy", False) is not True

    def reset(self, seeds: Sequence[int]) -> tuple[Any, Infos]:
        self.lengths[:] = 0
        self.last, infos = self._reset_all(seeds)
        return self.last, infos

    def step(self, actions) -> Step:
        observations, rewards, terminations, truncations, infos = self._step_world(actions)
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
        return self._reset_world(self.num_envs, seed=[int(seed) for seed in seeds])

    def _reset_columns(self, ended: ndarray, seeds: Sequence[int]) -> tuple[Any, Infos]:
        """Reset the k columns ended; return their observations (k, ...), and infos (n, ...)."""
        all_seeds: list[int | None] = [None] * self.num_envs
        for i, seed in zip(np.flatnonzero(ended), seeds, strict=True):
            all_seeds[i] = int(seed)
        options = {"reset_mask": np.array(ended)}
        observations, infos = self._reset_world(self.num_envs, seed=all_seeds, options=options)
        return map_arrays(lambda array: array[ended], observations), infos


class AtariVector(MaskedReset):
    """ale_py's AtariVectorEnv, which takes an array of signed seeds, only for the columns reset."""

    def __init__(self, env, max_episode_steps: int | None = None) -> None:
        super().__init__(env, max_episode_steps)
        self.reuses_memory = False

    def _reset_all(self, seeds: Sequence[int]) -> tuple[Any, Infos]:
        return self._reset_world(self.num_envs, seed=signed_seeds(seeds))

    def _reset_columns(self, ended: ndarray, seeds: Sequence[int]) -> tuple[Any, Infos]:
        options = {"reset_mask": np.array(ended)}
        observations, infos = self._reset_world(
            self.num_envs, seed=signed_seeds(seeds), options=options
        )
        return map_arrays(lambda array: array[ended], observations), infos


class EnvPoolBatch(MaskedReset):
    """A world of EnvPool, whose seeds are fixed where it is made: a reset goes on with them.

    In the last step that its own max_episode_steps allows, EnvPool reports a termination as a
    truncation. Episodes are exact if they are truncated here, one step earlier."""

    def __init__(self, env, max_episode_steps: int | None = None) -> None:
        super().__init__(env, max_episode_steps)
        self.reuses_memory = False
        self.observation_space = without_false_bounds(self.observation_space)
        own_limit = find_attribute(env, "config")["max_episode_steps"]
        if own_limit < NO_LIMIT and not (max_episode_steps and max_episode_steps < own_limit):
            self.note = (
                f"EnvPool reports a termination in step {own_limit}, its last, as a truncation: "
                f"make it with max_episode_steps={own_limit + 1}, and give "
                f"--max_episode_steps={own_limit}"
            )

    def _reset_all(self, seeds: Sequence[int]) -> tuple[Any, Infos]:
        return self._reset_world(self.num_envs)

    def _reset_columns(self, ended: ndarray, seeds: Sequence[int]) -> tuple[Any, Infos]:
        """Reset columns; EnvPool returns their rows only, in order."""
        options = {"reset_mask": np.array(ended)}
        rows, infos = self._reset_world(int(ended.sum()), options=options)
        return rows, spread_infos(infos, ended)


class SameStep(Batch):
    """A world that begins the next episode in the step that ends one, as GPU simulators do.

    The last observations are in its infos, as gymnasium's final_obs or ManiSkill's
    final_observation: arrays (n, ...), or a list with one for each column. Where none is given, the
    observation before the step takes its place, and note says so at the first truncation. reset
    gives the world the first seed; later episodes have none."""

    def __init__(self, env) -> None:
        super().__init__(env)
        self.before: Any = None  # the observations before a step; None once last ones are given
        self.first: Any = None  # observations of which some begin episodes
        self.first_infos: Infos = {}

    def reset(self, seeds: Sequence[int]) -> tuple[Any, Infos]:
        self.first, self.first_infos = self._reset_world(self.num_envs, seed=int(seeds[0]))
        self.before = map_arrays(np.array, self.first)
        return self.first, self.first_infos

    def step(self, actions) -> Step:
        observations, rewards, terminations, truncations, infos = self._step_world(actions)
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

    def _fill_in(self, observations, missing: ndarray, truncations: ndarray):
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
    """A world that resets a column in the step after an episode's end, and cannot be told to.

    These are gymnasium's vector entry points. After restart, present is False in the columns that
    ended: the next step ignores their actions, gives them reward 0 and their first observations,
    and present is True again. reset gives the world the first seed; later episodes have none."""

    def __init__(self, env) -> None:
        super().__init__(env)
        self.present: ndarray = np.ones(self.num_envs, np.bool_)
        self.last: Any = None  # observations

    def reset(self, seeds: Sequence[int]) -> tuple[Any, Infos]:
        self.present = np.ones(self.num_envs, np.bool_)
        self.last, infos = self._reset_world(self.num_envs, seed=int(seeds[0]))
        return self.last, infos

    def step(self, actions) -> Step:
        self.last, rewards, terminations, truncations, infos = self._step_world(actions)
        rewards[~self.present] = 0
        terminations &= self.present
        truncations &= self.present
        self.present = np.ones(self.num_envs, np.bool_)
        return self.last, rewards, terminations, truncations, infos

    def restart(self, ended: ndarray, seeds: Sequence[int]) -> tuple[Any, Infos]:
        self.present = ~ended
        return self.last, {}


def adapt(env, max_episode_steps: int | None = None, num_envs: int | None = None) -> Batch:
    """Return the Batch of a world that steps many environments together.

    EnvPool, ale_py's AtariVectorEnv, gymnasium's SyncVectorEnv and AsyncVectorEnv, and any other
    gymnasium.vector.VectorEnv whose autoreset is off, are told which columns to reset. Others reset
    columns by themselves: metadata["autoreset_mode"] says whether in the same step, which is
    assumed if it says nothing, or in the next one.
    num_envs: how many environments there must be; None: any number. Raises EnvironmentUnavailable
    for another number, for missing attributes, for a limit that this world cannot keep, and for a
    world that resets nothing."""
    batch = _choose(env, max_episode_steps)
    if num_envs not in (None, batch.num_envs):
        raise EnvironmentUnavailable(
            f"{type(env).__name__} is a batch of {batch.num_envs} environments, not of {num_envs}: "
            "make as many as its parameter num_envs says"
        )
    if max_episode_steps and not batch.can_restart:
        raise EnvironmentUnavailable(
            f"--max_episode_steps={max_episode_steps} cannot be kept, as {type(env).__name__} "
            "cannot reset a single environment: give the limit to the environment itself"
        )
    return batch


def _choose(env, max_episode_steps: int | None) -> Batch:
    world = getattr(env, "unwrapped", env)
    modules = {kind.__module__.split(".")[0] for kind in type(world).__mro__}
    if "envpool" in modules:
        return EnvPoolBatch(env, max_episode_steps)
    if "ale_py" in modules:
        return AtariVector(env, max_episode_steps)
    mode = find_attribute(env, "metadata").get("autoreset_mode")
    mode = str(getattr(mode, "value", mode)).replace("_", "").lower()
    is_vector_env = isinstance(env, VectorEnv)
    is_told = isinstance(world, (SyncVectorEnv, AsyncVectorEnv)) or mode == "disabled"
    if is_told and is_vector_env:
        return MaskedReset(env, max_episode_steps)
    if is_told or ("mani_skill" in modules and not is_vector_env):
        raise EnvironmentUnavailable(
            f"{type(env).__name__} does not reset environments whose episodes have ended: turn its "
            "autoreset on (for ManiSkill, put it into a ManiSkillVectorEnv)"
        )
    return NextStep(env) if mode == "nextstep" else SameStep(env)


def find_attribute(env, name: str):
    """Return an attribute of a world, or of what its wrappers hide.

    Raises EnvironmentUnavailable if there is none."""
    for layer in (env, getattr(env, "unwrapped", env)):
        if hasattr(layer, name):
            return getattr(layer, name)
    raise EnvironmentUnavailable(
        f"{type(env).__name__} has no {name}: give a batch the attributes of a "
        "gymnasium.vector.VectorEnv"
    )


class CheckBatch:
    """Check a batch of observations in one pass, as CheckData checks those of one environment.

    space: a Box, or a leaf of a nested space that holds numbers; conversions: what the world should
    return instead of what was cast."""

    def __init__(self, space) -> None:
        self.space = space
        self.conversions: dict[str, str] = {}
        self.is_box = isinstance(space, spaces.Box)
        self.low, self.high = _bounds(space)
        self.is_every_byte = (
            space.dtype == np.uint8 and (self.low == 0).all() and (self.high == 255).all()
        )

    def __call__(self, observations: ndarray) -> tuple[ndarray, ndarray]:
        """Return observations (n, *shape) in the dtype of the space, and (n,) how many numbers of
        each are outside of its bounds.

        Raises InvalidEnvOutput for another shape, for a dtype that would lose more than precision,
        for numbers that are not finite, and for choices that the space does not have."""
        num_envs = len(observations)
        space = self.space
        if observations.dtype != space.dtype:
            given = f"its observations are {observations.dtype}, not {space.dtype}"
            observations = convert(observations, space)
            if observations.dtype != space.dtype:
                raise InvalidEnvOutput(f"{given} {space.shape}")
            self.conversions["observation"] = f"{given}, to which they are cast: return that"
        if observations.shape != (num_envs, *space.shape):
            raise malformed(observations, num_envs, space)
        if self.is_every_byte:
            return observations, np.zeros(num_envs, np.int64)
        is_inside = (self.low <= observations) & (observations <= self.high)
        if is_inside.all():
            return observations, np.zeros(num_envs, np.int64)
        if not self.is_box:
            _blame(observations, is_inside, f"outside of {space}")
        _blame(observations, np.abs(observations) <= MAX_FLOAT32, "not finite")
        return observations, (~is_inside).reshape(num_envs, -1).sum(axis=1)


def check_rewards(rewards: ndarray) -> None:
    """Raise InvalidEnvOutput if one of the rewards (n,) is not finite, as float32, too."""
    is_finite = np.abs(rewards) <= MAX_FLOAT32
    if not is_finite.all():
        column = int(np.argmin(is_finite))
        raise InvalidEnvOutput(
            f"its reward in column {column} is {rewards[column]}, not one finite number"
        )


def _bounds(space) -> tuple[ndarray, ndarray]:
    """Return the least and the largest numbers of a leaf space, finite ones."""
    if isinstance(space, spaces.Box):
        largest = MAX_FLOAT32
        if space.dtype.kind == "f":
            largest = min(largest, float(np.finfo(str(space.dtype)).max))
        return np.maximum(space.low, -largest), np.minimum(space.high, largest)
    start = np.asarray(getattr(space, "start", 0))
    if isinstance(space, spaces.MultiBinary):
        return start, start + 1
    return start, start + np.asarray(getattr(space, "nvec", getattr(space, "n", None))) - 1


def _blame(observations: ndarray, is_valid: ndarray, problem: str) -> None:
    """Raise InvalidEnvOutput for the first column in which not everything is valid, if any."""
    columns = np.flatnonzero(~is_valid.reshape(len(observations), -1).all(axis=1))
    if columns.size:
        row = np.asarray(observations[columns[0]])
        raise InvalidEnvOutput(
            f"its observation {describe_value(row)} in column {columns[0]} is {problem}"
        )


def info_of(infos: Infos, i: int, num_envs: int) -> dict[str, Any]:
    """Return the info of column i, that of the step that ended its episode if final_info has one.

    Left out are keys that a mask _key denies to this column, observations, and values that are not
    of num_envs rows, such as logs of a whole batch."""
    final = infos.get("final_info")
    if final is not None and _has(infos, "final_info", i):
        return info_of(final, i, num_envs) if isinstance(final, dict) else (final[i] or {})
    info: dict[str, Any] = {}
    for key, values in infos.items():
        if str(key).startswith("_") or key in NOT_OF_A_COLUMN or not _has(infos, key, i):
            continue
        if isinstance(values, dict):
            if nested := info_of(values, i, num_envs):
                info[key] = nested
        elif _num_rows(values) == num_envs:
            info[key] = to_numpy(values[i]) if hasattr(values, "detach") else values[i]
    return info


def _has(infos: Infos, key, i: int) -> bool:
    """Return whether infos[key] has a value for column i."""
    mask = infos.get(f"_{key}")
    if mask is not None:
        return bool(mask[i])
    values = infos[key]
    return isinstance(values, dict) or _num_rows(values) <= i or values[i] is not None


def _num_rows(values) -> int:
    if isinstance(values, (list, tuple)):
        return len(values)
    shape = getattr(values, "shape", ())
    return shape[0] if shape else 0


def with_last_observations(observations, infos: Infos, ended: ndarray, space):
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


def signed_seeds(seeds: Sequence[int]) -> ndarray:
    """Return seeds of 32 bits as numbers of 31 bits, for worlds that take signed integers."""
    return np.array([int(seed) & 0x7FFFFFFF for seed in seeds], np.int64)


def spread_infos(infos: Infos, columns: ndarray) -> Infos:
    """Return infos (n, ...) with masks, of those (k, ...) of the k columns (n,) bool."""
    spread: Infos = {}
    for key, rows in infos.items():
        if not isinstance(rows, ndarray) or len(rows) != columns.sum():
            continue
        whole = np.zeros((len(columns), *rows.shape[1:]), rows.dtype)
        spread[key] = with_rows(whole, columns, rows)
        spread[f"_{key}"] = columns
    return spread


def without_false_bounds(space):
    """Return a space in which the largest float, and the least above zero, are no bounds.

    EnvPool gives these, C++'s FLT_MIN and FLT_MAX, to observations that have no bounds."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: without_false_bounds(part) for key, part in space.items()})
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        return space
    limits = np.finfo(str(space.dtype))
    low = np.where(space.low == limits.tiny, -np.inf, space.low)
    high = np.where(space.high == limits.max, np.inf, space.high)
    return spaces.Box(low.astype(space.dtype), high.astype(space.dtype), dtype=space.dtype)
