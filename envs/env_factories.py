"""Environments as Python gives them: ids, classes, and functions that make one."""

import pickle
from collections.abc import Callable
from functools import cache
from typing import Any

from ppo.envs.registrations import Registrations
from ppo.errors import ConfigError

EnvLike = str | Callable[..., Any]  # an id, or a class or function that makes an environment
unpickle = cache(pickle.loads)  # cached, so that all environments of a process share one class


class EnvName(str):
    """A value of --env_name that takes the program's registrations to other processes."""

    registrations: Registrations


class EnvObject(EnvName):
    """A label such as "<Reach>" with a pickled class or function, which other processes unpickle.

    It takes the place of an id in the settings; files store the label only."""

    pickled: bytes


def as_env_name(env: EnvLike) -> EnvName:
    """Return what --env_name takes for an id, a class, or a function that makes an environment.

    Raises ConfigError if env is none of these, or cannot be sent to other processes."""
    if isinstance(env, EnvName):
        return env
    label = EnvName(env) if isinstance(env, str) else _as_object(env)
    label.registrations = Registrations()
    return label


def _as_object(env: Any) -> EnvObject:
    """Return the label of a class or function. Raises as as_env_name does."""
    name = getattr(env, "__name__", type(env).__name__).strip("<>")
    if not callable(env):
        raise ConfigError(
            f"{name} is an object: give an id, a class, or a function that makes one "
            "gymnasium.Env, of which --num_envs are made"
        )
    import cloudpickle

    label = EnvObject(f"<{name}>")
    try:
        label.pickled = cloudpickle.dumps(env)
    except Exception as error:  # whatever its parts raise
        raise ConfigError(
            f"environment {label} cannot be sent to other processes ({error}): make what it "
            "holds inside of the function or in __init__"
        ) from error
    return label
