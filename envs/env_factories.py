"""Environments as Python gives them: ids, classes, and functions that make one."""

import pickle
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from ppo.envs.registrations import Registrations
from ppo.errors import ConfigError
from ppo.system.imports import has_guard

EnvLike = str | Callable[..., Any]  # an id, or a class or function that makes an environment
unpickle = cache(pickle.loads)  # cached, so that all environments of a process share one class


class EnvName(str):
    """A value of --env_name that takes the program's registrations to other processes."""

    registrations: Registrations


class EnvObject(EnvName):
    """A label such as "<Reach>" with a pickled class or function, which other processes unpickle.

    It takes the place of an id in the settings; files store the label only. place: module:Name or
    file.py:Name by which a command imports it, "" if none can."""

    pickled: bytes
    place: str


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
    label.place = _place_of(env)
    try:
        label.pickled = cloudpickle.dumps(env)
    except Exception as error:  # whatever its parts raise
        raise ConfigError(
            f"environment {label} cannot be sent to other processes ({error}): make what it "
            "holds inside of the function or in __init__"
        ) from error
    return label


def _place_of(env: Any) -> str:
    """Return module:Name or file.py:Name of a class or function, "" if a command cannot import it:
    it is local, or in a script that would train again as it is imported."""
    module, name = str(getattr(env, "__module__", "")), str(getattr(env, "__qualname__", ""))
    loaded = sys.modules.get(module)
    if getattr(loaded, name, None) is not env:
        return ""
    if module == "__main__":
        spec = getattr(loaded, "__spec__", None)  # of python -m
        module = spec.name if spec else module
    file = str(getattr(loaded, "__file__", None))
    if loaded is sys.modules["__main__"] and not has_guard(file):
        return ""
    return f"{module if '.' in module else file}:{name}"
