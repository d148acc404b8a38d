"""Make environments: from an id, a class, a function or what module:Name names."""

import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import signature
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Env, Space
from gymnasium.envs import registration
from gymnasium.envs.registration import EnvSpec
from numpy import ndarray

from ppo.config import Config
from ppo.envs.episodes import RecordEpisode, RepeatAction
from ppo.envs.observations import Layout, Reader
from ppo.envs.spaces import ACTION_MASK, holds_numbers, leaves, mask_converter
from ppo.errors import BadValue, ConfigError, EnvironmentFailed, PPOError, reason, suggest
from ppo.imports import import_module, import_named, is_path


def find_spec(env: Any) -> EnvSpec:
    """Return the EnvSpec of an id, of module:Name or file.py:Name, or of a class or function.

    An id whose version is gone stands for the newest one. Raises ConfigError if there is none."""
    if callable(env):
        name = getattr(env, "__name__", type(env).__name__)
        return EnvSpec(re.sub(r"\W", "", name), env)
    if is_path(env):
        module, _, env_id = env.rpartition(":")
        if not re.search(r"-v\d+$", env_id):
            return find_spec(import_named(env, "env_name"))
        import_module(module, "env_name")  # which registers the id
        env = env_id
    if env not in gymnasium.registry:
        import ale_py  # noqa: F401, registers its ids

        from ppo.envs.atari import without_frame_skip

        env = without_frame_skip(env)
    if env in gymnasium.registry:
        return gymnasium.registry[env]
    with suppress(gymnasium.error.Error):
        namespace, base, given = registration.parse_env_id(env)
        version = registration.find_highest_version(namespace, base)
        if version is not None and (given or 0) <= version:
            return gymnasium.registry[registration.get_env_id(namespace, base, version)]
    raise ConfigError(f"--env_name={env} is unknown{suggest(env, gymnasium.registry)}")


def _takes_index(creator: Any) -> bool:
    with suppress(TypeError, ValueError):  # of builtins
        return "index" in signature(creator).parameters
    return False


def _find_creator(spec: EnvSpec) -> Any:
    """Return the class or function that makes an environment. Raises ConfigError if it cannot be
    imported or is no Env, or does not take env_kwargs."""
    creator: Any = spec.entry_point
    try:
        if isinstance(creator, str):
            creator = registration.load_env_creator(creator)
        index = {"index": 0} if _takes_index(creator) else {}
        signature(creator).bind(**index, **spec.kwargs)
    except ImportError as error:
        raise ConfigError(f"--env_name={spec.id} needs a package ({reason(error)})") from error
    except TypeError as error:
        raise ConfigError(f"--env_kwargs of --env_name={spec.id}: {error}") from error
    except ValueError:  # of builtins
        return creator
    if isinstance(creator, type) and not issubclass(creator, Env):
        raise ConfigError(f"--env_name={spec.id} is not a subclass of gymnasium.Env")
    return creator


@dataclass
class EnvMaker:
    """Make the environments of a run, in any process. A function with the parameter index is given
    the environment's number. found: the EnvSpec, if it is known already."""

    config: Config
    found: EnvSpec | None = None

    @property
    def spec(self) -> EnvSpec:
        """What gymnasium knows of the environment. It is found once and goes to workers as it is,
        since a script may have registered the id. Raises ConfigError if there is none."""
        if not self.found:
            spec = find_spec(self.config.env_name)
            spec = replace(spec, kwargs={**spec.kwargs, **self.config.env_kwargs})
            self.found = replace(spec, entry_point=_find_creator(spec))
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
        if _takes_index(spec.entry_point):
            kwargs.setdefault("index", index)
        steps = config.max_episode_steps or (None if spec.max_episode_steps else limit)
        # gymnasium's own checker would cost time in every step.
        env = gymnasium.make(replace(spec, kwargs=kwargs), steps, disable_env_checker=True)
        env = self._wrap(env)
        if config.frame_skip != "auto" and config.frame_skip > 1:
            env = RepeatAction(env, config.frame_skip)
        return RecordEpisode(env)

    @property
    def is_atari(self) -> bool:
        """Whether the environment is a game of the Atari emulator, observed as images."""
        kwargs = self.spec.kwargs
        is_of_ale = getattr(self.spec.entry_point, "__module__", "").startswith("ale_py.")
        return is_of_ale and kwargs.get("obs_type") != "ram" and not kwargs.get("continuous")

    def _wrap(self, env: Env) -> Env:
        """Add the user's wrappers, the innermost first. Raises ConfigError for one that is none."""
        for wrapper in self.config.wrapper:
            make = import_named(wrapper, "wrapper") if isinstance(wrapper, str) else wrapper
            try:
                env = make(env)
            except TypeError as error:
                raise ConfigError(f"--wrapper={wrapper} cannot be used ({error})") from error
            if not isinstance(env, Env):
                raise ConfigError(f"--wrapper={wrapper} makes no gymnasium.Env")
        return env


@contextmanager
def calling(what: str, bad: type[PPOError] = EnvironmentFailed) -> Iterator[None]:
    """Turn what an environment raises in this context into EnvironmentFailed, with its traceback,
    and BadValue into an error of the type bad."""
    try:
        yield
    except PPOError:
        raise
    except BadValue as error:
        raise bad(f"environment {what}: {error}") from error
    except BaseException as error:
        message = f"environment {what} raised {reason(error)}"
        raise EnvironmentFailed(message, traceback.format_exc()) from error


@dataclass(frozen=True)
class Spaces:
    """What a run knows of its environments, and what makes them.

    has_masks: whether infos have action masks; columns: the class, such as
    ppo.envs.columns.SingleColumns, that steps environments of this kind."""

    make_env: EnvMaker
    observations: Space[Any]
    actions: Space[Any]
    has_masks: bool
    columns: Any

    @property
    def config(self) -> Config:
        """The settings of the run."""
        return self.make_env.config

    @cached_property
    def layout(self) -> Layout:
        """How observations are kept in tables."""
        return Layout(self.observations, self.config)

    def with_config(self, config: Config) -> "Spaces":
        """Return the same with other settings."""
        return replace(self, make_env=replace(self.make_env, config=config))


def look(config: Config) -> Spaces:
    """Make an environment, reset it and, if all actions are allowed, take a random step: a first
    look, before workers do the same. Raises ConfigError for what cannot be used."""
    from ppo.envs.columns import SingleColumns

    make_env = EnvMaker(config)
    name = make_env.spec.id
    with calling(name):
        env: Any = make_env()
    try:
        observes: Any = getattr(env, "observation_space", None)
        acts: Any = getattr(env, "action_space", None)
        if not (holds_numbers(acts) and any(holds_numbers(x) for _, x in leaves(observes))):
            raise ConfigError(
                f"environment {name} observes {observes} and acts in {acts}: both must be spaces "
                "of gymnasium that hold a fixed number of numbers; actions in a Dict or Tuple need "
                "a wrapper that makes one space of them"
            )
        read = Reader(Layout(observes, config))
        with calling(name, bad=ConfigError):
            observation, info = env.reset(seed=0)
            check_finite(read(observation), "it")
            has_masks = ACTION_MASK in info and mask_converter(acts)(info[ACTION_MASK]).size > 0
            if not has_masks:
                acts.seed(0)
                observation, reward, *_ = env.step(acts.sample())
                check_finite({**read(observation), "rewards": np.asarray(reward)}, "it")
    finally:
        with suppress(BaseException):
            env.close()
    return Spaces(make_env, observes, acts, has_masks, SingleColumns)


def check_finite(rows: Mapping[str, ndarray], whose: str) -> None:
    """Raise BadValue for numbers that are not finite."""
    for name, values in rows.items():
        if not np.isfinite(values).all():
            raise BadValue(f"{whose} has returned {name} that are not finite: {values}")
