"""Wrappers that look at what an environment returns: extensions have some."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gymnasium import Env, Wrapper

from ppo.envs.env_kwargs import about_wrapper
from ppo.envs.episodes import layers
from ppo.extensions import functions_of

if TYPE_CHECKING:
    from ppo.config.config import Config


class Inspector(Wrapper):
    """Look at what an environment returns.

    problems: what it should return instead, for its author, by what it is of; faults: how often
    something was wrong, by a kind of fault that an extension declares."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.problems: dict[str, str] = {}
        self.faults = Counter[str]()


def inspected(config: "Config", env: Env) -> Env:
    """Put the inspectors of extensions around an environment, or none."""
    for inspect in functions_of("inspect"):
        env = inspect(config, env)
    return env


def problems_of(env: Env) -> Iterator[str]:
    """Yield the problems that inspectors have found, and what there is to say of wrappers."""
    for layer in layers(env):
        if isinstance(layer, Inspector):
            yield from layer.problems.values()
        if about := about_wrapper(type(layer)):
            yield about


def take_faults(env: Env) -> dict[str, int]:
    """Return the faults since the last call."""
    total = Counter[str]()
    for layer in layers(env):
        if isinstance(layer, Inspector):
            total += layer.faults
            layer.faults.clear()
    return total
