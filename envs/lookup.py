"""Find what an id stands for: an entry of gymnasium's registry, or a class or function."""

import dataclasses
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from errno import EADDRINUSE
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from inspect import signature
from pkgutil import resolve_name
from typing import Any

import gymnasium
from gymnasium import Wrapper
from gymnasium.envs.registration import EnvSpec, find_highest_version, get_env_id, parse_env_id

from ppo.envs.env_factories import EnvName, EnvObject, unpickle
from ppo.envs.errors import EnvironmentUnavailable, InvalidEnvOutput, worker_error
from ppo.envs.families import FAMILIES, Atari
from ppo.errors import PPOError, suggest
from ppo.extensions import NOTHING, names_of
from ppo.system.imports import hidden_module, import_code
from ppo.system.signals import RAISED_BY_SIGNALS

ALIASES = {
    "LunarLander-v2": "LunarLander-v3",
    "LunarLanderContinuous-v2": "LunarLanderContinuous-v3",
    "BipedalWalker-v2": "BipedalWalker-v3",
}
# Of gymnasium's messages about wrong keyword arguments, and about classes that are not an Env.
ARGUMENTS = (
    r"(unexpected keyword|multiple values|missing (\d+ )?required|takes no arguments)"
    ".* from the environment creator"
)
RESET = r"reset\(\) got an unexpected keyword argument '(seed|options)'"
UNSUITABLE = f"{ARGUMENTS}|{RESET}|inherit from the gymnasium.Env|update the environment class"


def canonical_id(env_name: str) -> str:
    """Return the current id of an environment, if gymnasium has removed the given one."""
    for family in FAMILIES:
        current = family.canonical_id(env_name)
        if current != env_name:
            import_module(family.module)
            if current in gymnasium.registry:
                return current
    if env_name in gymnasium.registry:
        return env_name
    return ALIASES.get(env_name, env_name)


def find_family(
    env_name: str, env_kwargs: dict[str, Any]
) -> tuple[str, str | None, dict[str, Any]]:
    """Return an environment's current id, the name of its family (None without one), and what
    "auto" means for its flags, by name. Raises EnvironmentUnavailable if there is no such
    environment, or WorkerError for what its module raises."""
    env_name = canonical_id(env_name)
    with explained_errors(env_name):
        spec, family = look_up(env_name, env_kwargs)
    if family is None:
        return env_name, None, {"frame_skip": 1}
    return env_name, family.name, family.auto_values(spec)


def command_name(env_name: str) -> str:
    """Return what a command's --env_name is given for an environment, which may be from Python, ""
    if no command can import it."""
    if isinstance(env_name, EnvObject):
        path, _, name = env_name.place.rpartition(":")
        return f"{os.path.relpath(path) if os.sep in path else path}:{name}" if path else ""
    if isinstance(env_name, EnvName) and env_name in gymnasium.registry:
        registrants = {"gymnasium", *(family.module for family in FAMILIES)}
        registrants |= {point.module for point in entry_points(group="gymnasium.envs")}
        entry_point = str(gymnasium.registry[env_name].entry_point)
        known = {name.partition(".")[0] for name in registrants}
        return env_name if re.split("[.:]", entry_point)[0] in known else ""
    return env_name


def look_up(env_name: str, env_kwargs: dict[str, Any]) -> tuple[EnvSpec, Atari | None]:
    """Return an environment's EnvSpec, of the latest version if the id has none, and its family.

    The family is None if no class of FAMILIES matches."""
    module, _, name = env_name.rpartition(":")
    maker = None
    if isinstance(env_name, EnvObject):
        name = env_name.strip("<>")
        maker = unpickle(env_name.pickled)
    elif module:
        imported = import_code(module)
        if name not in gymnasium.registry:
            maker = getattr(imported, name, None)
            if maker is None and hasattr(imported, "__path__") and find_spec(f"{module}.{name}"):
                maker = import_module(f"{module}.{name}")
    elif name not in gymnasium.registry:
        for family in FAMILIES:
            import_module(family.module)
        if name not in gymnasium.registry:
            maker = _maker_of(name)
    if maker is not None:
        maker = getattr(maker, "parallel_env", maker)  # of a module that has one
        if not callable(maker):
            raise EnvironmentUnavailable(
                f"--env_name={env_name} is {type(maker).__name__}, which makes nothing: give a "
                "class or a function"
            )
        if isinstance(maker, type) and issubclass(maker, Wrapper):
            maker = partial(maker)  # gymnasium 1.3 refuses a class of wrappers
        known = gymnasium.registry.get(name.rpartition("/")[2])
        spec = EnvSpec(name, maker, getattr(known, "reward_threshold", None))
    else:
        namespace, base, version = parse_env_id(name)
        if version is None:
            version = find_highest_version(namespace, base)
        spec = gymnasium.spec(get_env_id(namespace, base, version))
    # No order check: workers call reset before step, and the check would slow every step.
    spec = dataclasses.replace(spec, order_enforce=False, kwargs={**spec.kwargs, **env_kwargs})
    for family in FAMILIES:
        if family.matches(spec):
            return spec, family
    return spec, None


def _maker_of(name: str) -> Callable[..., Any] | None:
    """Return what an extension makes environments of an id by, or None."""
    for beginning, path in names_of("makers").items():
        if name.startswith(beginning):
            return partial(resolve_name(path), name)
    return None


def takes(entry_point: Any, name: str) -> bool:
    """Return whether a class or function has a parameter; those written in C tell none."""
    with suppress(TypeError, ValueError):
        return name in signature(entry_point).parameters
    return False


@contextmanager
def explained_errors(env_name: str, env_kwargs: Mapping[str, Any] = NOTHING) -> Iterator[None]:
    """Translate exceptions raised while an environment is made into errors that name the fix.

    env_kwargs: with which it is made. Raises EnvironmentUnavailable, or WorkerError for what the
    environment's own code raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as the one about newer versions
            yield
    except (PPOError, *RAISED_BY_SIGNALS):
        raise
    except gymnasium.error.UnregisteredEnv as error:
        raise EnvironmentUnavailable(_unregistered(env_name, error)) from error
    except (gymnasium.error.Error, ImportError) as error:
        raise EnvironmentUnavailable(_cannot_be_made(env_name, error)) from error
    except InvalidEnvOutput as error:
        raise EnvironmentUnavailable(f"environment {env_name}: {error}") from error
    except BaseException as error:
        if re.search(UNSUITABLE, str(error)):
            raise EnvironmentUnavailable(_cannot_be_made(env_name, error)) from error
        culprit = f"environment {env_name}"
        if getattr(error, "errno", None) == EADDRINUSE:  # two simulators with one port
            made_with = ", ".join(f"{key}={value!r}" for key, value in env_kwargs.items())
            culprit += (
                f" (made with {made_with or 'no --env_kwargs'}, which must give it a port of its "
                "own, as {9000+index} does, that no other program uses)"
            )
        raise worker_error(culprit, error) from error


def _unregistered(env_name: str, error: Exception) -> str:
    """Say what an id that gymnasium does not know could be meant for."""
    module, _, name = env_name.rpartition(":")
    imported: Any = import_code(module) if module else None
    is_known = isinstance(env_name, EnvObject) or env_name in gymnasium.registry
    if is_known or hasattr(imported, name):  # whose code asks for another id
        return f"--env_name={env_name} cannot be made: {error}"
    known = [*gymnasium.registry]
    if module:
        members = vars(imported).items()
        own = [
            key for key, value in members if getattr(value, "__module__", "") == imported.__name__
        ]
        fallback = f"{module} has {', '.join(own) or 'no class and no function'}"
        hint = suggest(name, [*known, *dir(imported)], fallback)
    else:
        fallback = "gymnasium.pprint_registry() lists all; a class of yours is file.py:Name"
        hint = suggest(name, known, fallback)
        if name.endswith(".py"):
            hint += f" (give {name}:Name of a class or function in it)"
        else:
            hint += f" (give module:{name} if a module of yours registers it)"
    return f"--env_name={env_name} is unknown: {hint}{hidden_module(module)}"


def _cannot_be_made(env_name: str, error: BaseException) -> str:
    """Say why an environment cannot be made, and the fix if the error shows which."""
    module = env_name.rpartition(":")[0]
    hint = ""
    if isinstance(error, ModuleNotFoundError) and error.name and not module:
        hint = f": pip install {error.name}"
    if re.search(ARGUMENTS, str(error)):
        hint = ": --env_kwargs gives arguments"
        if "render_mode" in str(error):
            hint = ": to be seen, it must take render_mode, and have render()"
    if re.search(RESET, str(error)):
        hint = ": write def reset(self, *, seed=None, options=None)"
    return f"--env_name={env_name} cannot be made: {error}{hint}{hidden_module(module)}"
