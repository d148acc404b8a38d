"""Make an environment from its id."""

import dataclasses
import difflib
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

import gymnasium
from gymnasium import Env, Wrapper, spaces
from gymnasium.envs.registration import EnvSpec, find_highest_version, get_env_id, parse_env_id

from ppo.envs.checks import CheckData
from ppo.envs.episodes import FreshEveryEpisode, RecordEpisode
from ppo.envs.errors import EnvironmentUnavailable, worker_error
from ppo.envs.families import FAMILIES
from ppo.envs.heartbeat import HEARTBEAT
from ppo.envs.observations import can_observe, observe
from ppo.envs.spaces import can_act_in
from ppo.errors import PPOError

ALIASES = {
    "LunarLander-v2": "LunarLander-v3",
    "LunarLanderContinuous-v2": "LunarLanderContinuous-v3",
    "BipedalWalker-v2": "BipedalWalker-v3",
}
UNSUITABLE = r"(unexpected keyword|missing \d+ required).* from the environment creator"


def canonical_id(env_name: str) -> str:
    """Return the id that an environment has today, if gymnasium has dropped the given one."""
    for family in FAMILIES:
        current = family.canonical_id(env_name)
        if current != env_name:
            import_module(family.module)
        if current in gymnasium.registry:
            return current
    return ALIASES.get(env_name, env_name)


def family_of(env_name: str, env_kwargs: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return the name of an environment's family, None if it has none, and what "auto" means for
    its flags. Raises as make_env does."""
    with explained_errors(env_name):
        spec, family = _look_up(env_name, env_kwargs)
    if family is None:
        return None, {"frame_skip": 1}
    return family.name, family.auto_values(spec)


def make_env(config: Any) -> Env:
    """Make an environment whose observations are in a Box.

    config: a resolved ppo.config.config.Config, of which the flags of EnvironmentFlags are used.
    Raises EnvironmentUnavailable if there is none, if a package is missing, or if its spaces are of
    a kind that no policy can use; WorkerError if it raises."""
    env_name = config.env_name
    with explained_errors(env_name):
        spec, family = _look_up(env_name, config.env_kwargs)
        make = family.make if family else _make_checked
        HEARTBEAT("start")
        env = make(spec, config)
        space = env.observation_space
        actions = env.action_space
        is_usable = can_observe(space) and can_act_in(actions)
        if not is_usable or not spaces.flatdim(actions):
            raise EnvironmentUnavailable(
                f"--env_name={env_name} observes {space} and acts in {actions}, one of which has "
                "no fixed size or holds no number: choose another environment"
            )
        env = observe(env, config.image, config.screen_size, config.frame_stack)
        return env if HEARTBEAT.array is None else Watched(env)


def _look_up(env_name: str, env_kwargs: Mapping[str, Any]) -> tuple[EnvSpec, Any]:
    """Return how gymnasium makes an environment, and its family or None.

    Of an id without a version, it is the latest one."""
    module, _, name = env_name.rpartition(":")
    module = module.lstrip(".")  # nothing is relative to the trainer
    imported: Any = None
    if module:
        imported = import_module(module)
    elif name not in gymnasium.registry:
        for family in FAMILIES:
            import_module(family.module)
    if name not in gymnasium.registry and hasattr(imported, name):
        spec = EnvSpec(name, getattr(imported, name))
    else:
        namespace, base, version = parse_env_id(name)
        if version is None:
            version = find_highest_version(namespace, base)
        spec = gymnasium.spec(get_env_id(namespace, base, version))
    # Workers call in the right order; checking that would cost time at every step.
    spec = dataclasses.replace(spec, order_enforce=False, kwargs={**spec.kwargs, **env_kwargs})
    for family in FAMILIES:
        if family.matches(spec):
            return spec, family
    return spec, None


def _make_checked(spec: EnvSpec, config: Any) -> Env:
    """Make an environment, with a check of what it returns and a record of whole episodes."""
    # gymnasium's own checker would cost time at every step.
    make = partial(gymnasium.make, spec, disable_env_checker=True)
    env: Any = FreshEveryEpisode(make) if config.fresh_env_per_episode else make()
    env = CheckData(env, config.strict_spaces)
    if config.frame_skip > 1:
        from ppo.envs.images import RepeatAction

        env = RepeatAction(env, config.frame_skip)
    return RecordEpisode(env)


class Watched(Wrapper):
    """Give a sign of life at every call of an environment."""

    def reset(self, **options: Any) -> Any:
        HEARTBEAT("reset")
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        HEARTBEAT("step")
        return self.env.step(action)

    def render(self) -> Any:
        HEARTBEAT("render")
        return self.env.render()

    def close(self) -> None:
        HEARTBEAT("close")
        self.env.close()


@contextmanager
def explained_errors(env_name: str) -> Iterator[None]:
    """Turn exceptions raised while an environment is made into errors that name the fix."""
    module, _, name = env_name.rpartition(":")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is a newer version
            yield
    except PPOError:
        raise
    except gymnasium.error.UnregisteredEnv as error:
        hint = "gymnasium.pprint_registry() lists all"
        if near := difflib.get_close_matches(name, gymnasium.registry, n=3):
            hint = f"did you mean {' or '.join(near)}?"
        raise EnvironmentUnavailable(f"--env_name={env_name} is unknown: {hint}") from error
    except (gymnasium.error.Error, ImportError) as error:
        hint = ""
        if isinstance(error, ModuleNotFoundError) and error.name and not module:
            hint = f": pip install {error.name}"
        raise EnvironmentUnavailable(
            f"--env_name={env_name} cannot be made: {error}{hint}"
        ) from error
    except (Exception, SystemExit) as error:
        if re.search(UNSUITABLE, str(error)):
            raise EnvironmentUnavailable(
                f"--env_kwargs does not suit --env_name={env_name}: {error}"
            ) from error
        raise worker_error(f"environment {env_name}", error) from error
