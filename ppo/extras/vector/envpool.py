"""Environments of EnvPool, which steps a batch of them in C++."""

import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy import ndarray

from ppo.envs.errors import EnvironmentUnavailable
from ppo.envs.infos import Infos
from ppo.envs.trees import with_rows
from ppo.errors import suggest
from ppo.extras.vector.batches import MaskedReset, find_attribute, signed_seeds

ENVPOOL = "EnvPool/"  # of ids, such as EnvPool/LunarLander-v3
NO_LIMIT = 2**31 - 1  # what max_episode_steps is for environments without one


class EnvPoolBatch(MaskedReset):
    """A vector environment of EnvPool, whose seeds are fixed where it is made: a reset goes on with
    them.

    In the last step that its own max_episode_steps allows, EnvPool reports a termination as a
    truncation. Episodes are exact if they are truncated here, one step earlier."""

    def __init__(self, env: Any, max_episode_steps: int | None = None) -> None:
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
        return self._reset_envs(self.num_envs)

    def _reset_columns(self, ended: ndarray, seeds: Sequence[int]) -> tuple[Any, Infos]:
        """Reset columns; EnvPool returns their rows only, in order."""
        options = {"reset_mask": np.array(ended)}
        rows, infos = self._reset_envs(int(ended.sum()), options=options)
        return rows, spread_infos(infos, ended)


def make_envpool(
    env_name: str,
    num_envs: int,
    *,
    seeds: Sequence[int],
    max_episode_steps: int | None = None,
    num_threads: int = 1,
    **options: Any,
) -> EnvPoolBatch:
    """Make a batch of num_envs environments.

    env_name: with the prefix; seeds: one for each environment, of which all of its episodes depend;
    max_episode_steps: None for the environment's own limit; options: EnvPool's keyword arguments,
    such as episodic_life, reward_clip, noop_max, repeat_action_probability and full_action_space of
    Atari games. Raises EnvironmentUnavailable if EnvPool is not installed, or does not know the id
    or an option."""
    try:
        envpool = import_module("envpool")
    except ModuleNotFoundError as error:
        if error.name != "envpool":
            raise
        raise EnvironmentUnavailable(
            f"--env_name={env_name} needs EnvPool: pip install envpool"
        ) from error
    task = env_name.removeprefix(ENVPOOL)
    known = envpool.list_all_envs()
    if task not in known:
        hint = suggest(task, known, "envpool.list_all_envs() lists all")
        raise EnvironmentUnavailable(f"--env_name={env_name} is unknown: {hint}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the precision of bounds
            limit = max_episode_steps
            if limit is None:
                limit = envpool.make_spec(task, **options).config.max_episode_steps
            env = envpool.make_gymnasium(
                task,
                num_envs=num_envs,
                num_threads=num_threads,
                seed=signed_seeds(seeds),
                max_episode_steps=min(limit + 1, NO_LIMIT),
                **options,
            )
            return EnvPoolBatch(env, limit if limit < NO_LIMIT else None)
    except (AssertionError, TypeError, ValueError) as error:
        problem, *_ = f"{error}\n".splitlines()  # without the C++ types that may follow
        raise EnvironmentUnavailable(f"--env_name={env_name} cannot be made: {problem}") from error


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


def without_false_bounds(space: Space[Any]) -> Space[Any]:
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
