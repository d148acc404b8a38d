"""What a program has registered with gymnasium, for the processes that make its environments."""

import os
import pickle
import sys
from functools import cache, partial
from typing import Any, NoReturn

import gymnasium
from gymnasium.envs.registration import EnvSpec

from ppo.envs.errors import EnvironmentUnavailable

SCRIPT = "__main__:"  # the start of import paths that only the user's own process can import


class Registrations:
    """Hold the specs of all ids as they are now; another process that unpickles this has them, too.

    What cannot be sent is refused only where it is made."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.pickled = tuple(_pickle(*item) for item in gymnasium.registry.items())

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        if self.process != os.getpid():  # what comes back must not replace the originals
            _register(self.pickled)


def _pickle(name: str, spec: EnvSpec) -> tuple[str, bytes]:
    """Return an id and its pickled spec, with what the spec names in the user's script."""
    import cloudpickle

    script = vars(sys.modules["__main__"])
    paths = [spec.entry_point, spec.vector_entry_point]
    paths += [wrapper.entry_point for wrapper in spec.additional_wrappers]
    named = [path.removeprefix(SCRIPT) for path in paths if isinstance(path, str)]
    try:
        members = {member: script[member] for member in named if member in script}
        return name, cloudpickle.dumps((spec, members))
    except Exception as error:  # whatever its parts raise
        return name, cloudpickle.dumps((_refused(name, error), {}))


@cache
def _register(pickled: tuple[tuple[str, bytes], ...]) -> None:
    """Register ids, and give this process's main module what their specs name in the user's."""
    script = vars(sys.modules["__main__"])
    for name, content in pickled:
        try:
            spec, members = pickle.loads(content)
        except Exception as error:  # such as that of a module that is not found here
            spec, members = _refused(name, error), {}
        gymnasium.registry[name] = spec
        for member, value in members.items():
            script.setdefault(member, value)


def _refused(name: str, error: Exception) -> EnvSpec:
    """Return a spec whose environment cannot be made, in place of one that cannot be sent."""
    return EnvSpec(name, partial(_refuse, name, f"{type(error).__name__}: {error}"))


def _refuse(name: str, reason: str, /, **kwargs: Any) -> NoReturn:
    raise EnvironmentUnavailable(
        f"environment {name} cannot be sent to other processes ({reason}): register it with an "
        'entry_point like "module:Class", and make what it holds in __init__'
    )
