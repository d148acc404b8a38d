"""Make environments: from an id, a class, a function or what module:Name names."""

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import signature
from pkgutil import resolve_name
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Env, Wrapper
from gymnasium.envs.registration import (
    EnvSpec,
    find_highest_version,
    get_env_id,
    load_env_creator,
    parse_env_id,
    registry,
)

from ppo.config import Config
from ppo.envs.episodes import RecordEpisode, Values
from ppo.envs.observations import Layout
from ppo.envs.spaces import to_json
from ppo.errors import BadValue, ConfigError, EnvironmentFailed, PPOError, reason, suggest
from ppo.extras import COLUMNS, IDS, REPEATS, WRAPPERS
from ppo.imports import import_module, import_named, is_path


def find_spec(env: Any) -> EnvSpec:
    """Return the EnvSpec of an id, of module:Name or file.py:Name, or of a class or function. An id
    whose version is gone stands for the newest one. Raises ConfigError if there is none."""
    if callable(env):
        name = getattr(env, "__name__", type(env).__name__)
        return EnvSpec(re.sub(r"\W", "", name), env)
    if not isinstance(env, str):
        raise ConfigError(f"--env_name={env}: give an id, a class or a function")
    if is_path(env):
        module, _, env_id = env.rpartition(":")
        if not re.search(r"-v\d+$", env_id):
            return find_spec(import_named(env, "env_name"))
        import_module(module, "env_name")  # which registers the id
        env = env_id
    if env not in registry:
        import ale_py  # noqa: F401, registers its ids

        env = re.sub(r"Deterministic-(v[04])$", r"NoFrameskip-\1", env)  # AtariGame skips frames
    if env in registry:
        return registry[env]
    for prefix, path in IDS.items():
        if env.startswith(prefix):
            return resolve_name(path)(env)
    with suppress(gymnasium.error.Error):
        namespace, base, given = parse_env_id(env)
        version = find_highest_version(namespace, base)
        if version is not None and (given or 0) <= version:
            return registry[get_env_id(namespace, base, version)]
    own = f"(your own: module:{env} or file.py:Name)"
    raise ConfigError(f"--env_name={env} is unknown{suggest(env, registry)} {own}")


def takes(creator: Any, name: str) -> bool:
    """Return whether a class or function has a parameter of a name."""
    with suppress(TypeError, ValueError):  # of builtins
        return name in signature(creator).parameters
    return False


@dataclass
class EnvMaker:
    """Make the environments of a run, in any process. A function with the parameter index is given
    the environment's number. found: the EnvSpec, once it is known."""

    config: Config
    found: EnvSpec | None = None

    @property
    def spec(self) -> EnvSpec:
        """What gymnasium knows of the environment. It is found once and goes to workers as it is,
        since a script may have registered the id. Raises ConfigError if it cannot be used."""
        if self.found:
            return self.found
        spec = find_spec(self.config.env_name)
        kwargs = {**spec.kwargs, **self.config.env_kwargs}
        creator: Any = spec.entry_point
        try:
            if isinstance(creator, str):
                creator = load_env_creator(creator)
            kind = kind_of(creator)  # its extra passes more arguments
            check = signature(creator).bind_partial if kind else signature(creator).bind
            check(**({"index": 0} if takes(creator, "index") else {}), **kwargs)
            is_other = isinstance(creator, type) and not kind and not issubclass(creator, Env)
        except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
            raise ConfigError(f"--env_name={spec.id} needs a package ({reason(error)})") from error
        except TypeError as error:
            raise ConfigError(f"--env_kwargs of --env_name={spec.id}: {error}") from error
        except ValueError:  # of builtins
            is_other = False
        if is_other:
            raise ConfigError(f"--env_name={spec.id} is not a subclass of gymnasium.Env")
        self.found = replace(spec, kwargs=kwargs, entry_point=creator)
        return self.found

    def __call__(
        self, index: int = 0, render_mode: str | None = None, limit: int | None = None
    ) -> Env:
        """Make an environment whose last infos of episodes have their returns and lengths. limit:
        steps after which an episode is truncated if nothing else limits it."""
        config, spec = self.config, self.spec
        if self.is_atari:
            from ppo.envs.atari import make_game

            return make_game(spec, config, self._wrap, render_mode)
        kwargs = {**spec.kwargs}
        if render_mode:
            kwargs["render_mode"] = render_mode
        if takes(spec.entry_point, "index"):
            kwargs.setdefault("index", index)
        steps = config.max_episode_steps or spec.max_episode_steps or limit
        spec = replace(spec, kwargs=kwargs)
        # gymnasium's own checker would cost time in every step.
        env = inner = gymnasium.make(spec, steps, disable_env_checker=True)
        while config.max_episode_steps and isinstance(inner, Wrapper):
            if isinstance(inner, gymnasium.wrappers.TimeLimit):  # of its maker
                inner._max_episode_steps = config.max_episode_steps
            inner = inner.env
        env = self._wrap(env)
        if config.frame_skip != "auto" and config.frame_skip > 1:
            env = resolve_name(REPEATS["frame_skip"])(env, config.frame_skip)
        return RecordEpisode(env)

    @property
    def is_atari(self) -> bool:
        """Whether the environment is a game of the Atari emulator, observed as images."""
        kwargs = self.spec.kwargs
        is_of_ale = getattr(self.spec.entry_point, "__module__", "").startswith("ale_py.")
        return is_of_ale and kwargs.get("obs_type") != "ram" and not kwargs.get("continuous")

    def _wrap(self, env: Env) -> Env:
        for wrapper in self.config.wrapper:
            make = import_named(wrapper, "wrapper")
            try:
                env = make(env)
            except TypeError as error:
                raise ConfigError(f"--wrapper={wrapper} cannot be used ({error})") from error
            if not isinstance(env, Env):
                raise ConfigError(f"--wrapper={wrapper} does not return a gymnasium.Env")
        for name, path in WRAPPERS.items():
            parts = getattr(env.observation_space, "spaces", ())
            if name in parts or env.has_wrapper_attr(name):
                env = resolve_name(path)(env)
        return env


@contextmanager
def calling(what: str, bad: type[PPOError] = EnvironmentFailed) -> Iterator[None]:
    """Turn what an environment raises in this context into EnvironmentFailed, with its traceback,
    and BadValue into an error of the type bad."""
    try:
        yield
    except (PPOError, KeyboardInterrupt):
        raise
    except BadValue as error:
        raise bad(f"environment {what}: {error}") from error
    except BaseException as error:
        message = f"environment {what} raised {reason(error)}"
        raise EnvironmentFailed(message, traceback.format_exc()) from error


@dataclass(frozen=True)
class Spaces:
    """What a run knows of its environments, and what makes them. has_masks: whether infos have
    action masks."""

    make_env: EnvMaker
    observations: Any
    actions: Any
    has_masks: bool

    @property
    def config(self) -> Config:
        return self.make_env.config

    @cached_property
    def layout(self) -> Layout:
        return Layout(self.observations, self.config)

    @cached_property
    def in_json(self) -> list[Any]:
        """Both spaces as JSON values, made once: those of large images take a while."""
        return [to_json(self.observations), to_json(self.actions)]

    def with_config(self, config: Config) -> "Spaces":
        return replace(self, make_env=replace(self.make_env, config=config))

    def of_evaluations(self) -> "Spaces":
        """Return the same with the environment of --eval_env, if there is one."""
        name = self.config.eval_env
        if name is None:
            return self
        return replace(self, make_env=EnvMaker(replace(self.config, env_name=name)))


def kind_of(creator: Any) -> str:
    """Return the name in COLUMNS that a class or function has as parameter or attribute, or ""."""
    return next((x for x in COLUMNS if takes(creator, x) or hasattr(creator, x)), "")


def columns_of(make_env: EnvMaker) -> Any:
    """Return the class that steps the environments of a run, such as SingleColumns."""
    from ppo.envs.columns import SingleColumns

    kind = kind_of(make_env.spec.entry_point)
    return resolve_name(COLUMNS[kind]) if kind else SingleColumns


def look(config: Config) -> Spaces:
    """Make an environment, reset it and, if all actions are allowed, take a random step: a first
    look, before workers do the same. Raises ConfigError for what cannot be used."""
    make_env = EnvMaker(config)
    return columns_of(make_env).look(make_env)


def check_finite(rows: Values, whose: str) -> None:
    """Raise BadValue for numbers that are not finite."""
    for name, values in rows.items():
        if not np.isfinite(values).all():
            raise BadValue(f"{whose} gave non-finite {name}: {values!s:.200}")
