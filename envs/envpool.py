"""Environments of EnvPool, which steps a batch of them in C++."""

import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ppo.envs.batches import NO_LIMIT, EnvPoolBatch, signed_seeds
from ppo.envs.errors import EnvironmentUnavailable
from ppo.errors import suggest

PREFIX = "EnvPool/"  # of ids, such as EnvPool/LunarLander-v3


def make_envpool(
    env_name: str,
    num_envs: int,
    *,
    seeds: Sequence[int],
    max_episode_steps: int | None = None,
    num_threads: int = 1,
    **options: Any,
) -> "EnvPoolBatch":
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
    task = env_name.removeprefix(PREFIX)
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
            world = envpool.make_gymnasium(
                task,
                num_envs=num_envs,
                num_threads=num_threads,
                seed=signed_seeds(seeds),
                max_episode_steps=min(limit + 1, NO_LIMIT),
                **options,
            )
            return EnvPoolBatch(world, limit if limit < NO_LIMIT else None)
    except (AssertionError, TypeError, ValueError) as error:
        problem, *_ = f"{error}\n".splitlines()  # without the C++ types that may follow
        raise EnvironmentUnavailable(f"--env_name={env_name} cannot be made: {problem}") from error
