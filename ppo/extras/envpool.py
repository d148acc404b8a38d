"""Environments of EnvPool, which steps many of them in C++: --env_name=EnvPool/CartPole-v1."""

import warnings
from functools import partial
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box
from numpy import ndarray

from ppo.errors import ConfigError, suggest
from ppo.extras.autoreset import MaskedReset, Seeds, mapped

PREFIX = "EnvPool/"
NO_LIMIT = 2**31 - 1  # what max_episode_steps is for environments without one


def find_spec(env_name: str) -> EnvSpec:
    """Return what makes vector environments of an id. Raises ConfigError."""
    try:
        import envpool
    except ImportError as error:
        raise ConfigError(f"--env_name={env_name} needs a package: pip install envpool") from error
    task = env_name.removeprefix(PREFIX)
    known = envpool.list_all_envs()
    if task not in known:
        raise ConfigError(f"--env_name={env_name} is unknown{suggest(task, known)}")
    make: Any = make_envpool
    return EnvSpec(env_name, partial(make, task))


class EnvPool(MaskedReset):
    """A vector environment of EnvPool. Its seeds are fixed where it is made: resets go on with
    them. A reset of some environments returns their rows only."""

    def reset(self, seeds: Seeds) -> None:
        self._reset()

    def restart(self, ended: ndarray, seeds: Seeds) -> None:
        self._reset(options={"reset_mask": ended})

        def spread(rows: ndarray) -> ndarray:
            """Return an array (n, ...) with rows (k, ...) of those that have ended."""
            shape = (self.num_envs, *rows.shape[1:])
            whole = np.zeros(shape, rows.dtype)
            whole[ended] = rows
            return whole

        self.observations = mapped(spread, self.observations)


def make_envpool(
    task: str,
    num_envs: int,
    seeds: Seeds,
    max_episode_steps: int | None = None,
    num_threads: int = 1,
    **options: Any,
) -> EnvPool:
    """Make a vector environment. seeds: one for each environment, for all of its episodes; options:
    EnvPool's own. In the last step that its own limit allows, EnvPool reports a termination as a
    truncation: it gets a step more, and episodes are truncated here."""
    import envpool

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the precision of bounds
        try:
            limit = max_episode_steps
            if not limit:
                limit = envpool.make_spec(task, **options).config.max_episode_steps
            env = envpool.make_gymnasium(
                task,
                num_envs=num_envs,
                num_threads=num_threads,
                seed=np.array(seeds) & 0x7FFFFFFF,  # of 31 bits
                max_episode_steps=min(limit + 1, NO_LIMIT),
                **options,
            )
        except (AssertionError, TypeError, ValueError) as error:
            problem = str(error).partition("\n")[0]  # without the C++ types that may follow
            raise ConfigError(f"--env_name={PREFIX}{task} cannot be made: {problem}") from error
        made = EnvPool(env, limit if limit < NO_LIMIT else None)
    made.observation_space = without_false_bounds(made.observation_space)
    return made


def without_false_bounds(space: Any) -> Any:
    """Return a space in which C++'s FLT_MIN and FLT_MAX, which EnvPool gives to observations that
    have no bounds, are none."""
    if not isinstance(space, Box) or space.dtype.kind != "f":
        return space
    dtype: Any = space.dtype.type
    limits = np.finfo(dtype)
    low = space.low.copy()
    low[low == limits.tiny] = -np.inf
    high = space.high.copy()
    high[high == limits.max] = np.inf
    return Box(low, high, dtype=dtype)
