"""From an environment's id to an environment."""

import difflib
import importlib
import warnings
from typing import Any

import gymnasium
from gymnasium import spaces

from envs.worker import environment_error

ALIASES = {f"{name}-v2": f"{name}-v3" for name in ("LunarLander", "LunarLanderContinuous", "BipedalWalker")}


class EnvironmentUnavailable(ValueError):
    """No run can start with this environment; the message says why and what to do."""


def canonical_id(env_name: str) -> str:
    """The id under which gymnasium still has an environment, where it has given up an old one."""
    return ALIASES.get(env_name, env_name)


def make_env(env_name: str) -> gymnasium.Env:
    """A new environment, by an id that gymnasium knows, or by module:id, which imports the module first. Raises
    EnvironmentUnavailable if there is no such id or a package that it needs is missing, WorkerError if it raises."""
    module, _, name = env_name.rpartition(":")
    try:
        if module or name not in gymnasium.registry:
            importlib.import_module(module.lstrip(".") or "ale_py")  # ale_py registers the Atari games
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is a newer version
            env = gymnasium.make(name, disable_env_checker=True)  # the checker would cost time at every step
        return gymnasium.wrappers.ReshapeObservation(env, (1,)) if env.observation_space.shape == () else env
    except gymnasium.error.UnregisteredEnv as error:
        near = difflib.get_close_matches(name, gymnasium.registry, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "gymnasium.pprint_registry() lists all"
        raise EnvironmentUnavailable(f"--env_name={env_name} is unknown: {hint}") from error
    except (gymnasium.error.Error, ImportError) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) and not module else None
        hint = f": pip install {missing}" if missing else ""
        raise EnvironmentUnavailable(f"--env_name={env_name} cannot be made: {error}{hint}") from error
    except Exception as error:
        raise environment_error(env_name, error) from error


def spaces_of(env_name: str) -> tuple[Any, Any]:
    """Observation and action space. Raises EnvironmentUnavailable as make_env does, and for other kinds of space."""
    env = make_env(env_name)
    env.close()
    if not isinstance(env.observation_space, spaces.Box):
        raise EnvironmentUnavailable(f"--env_name={env_name} observes {env.observation_space}: choose one with a Box")
    if not isinstance(env.action_space, (spaces.Box, spaces.Discrete)):
        raise EnvironmentUnavailable(f"--env_name={env_name} acts in {env.action_space}: choose one with a Discrete")
    return env.observation_space, env.action_space
