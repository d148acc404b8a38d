"""Make environments: from an id, a class, a function or what module:Name names."""

import dataclasses
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import Env, Space
from gymnasium.envs.registration import (
    EnvSpec,
    find_highest_version,
    get_env_id,
    load_env_creator,
    parse_env_id,
)

from ppo.envs.episodes import RecordEpisode, RepeatAction
from ppo.envs.observations import Layout, Reader
from ppo.envs.spaces import ACTION_MASK, holds_numbers, leaves, mask_converter
from ppo.errors import BadValue, ConfigError, EnvironmentFailed, PPOError, reason, suggest
from ppo.imports import import_module, import_named, is_path

if TYPE_CHECKING:
    from ppo.config import Config


def find_spec(env: Any, env_kwargs: dict[str, Any]) -> EnvSpec:
    """Return the EnvSpec of an id, of module:Name or file.py:Name, or of a class or function.

    An id whose version is gone stands for the newest one. Raises ConfigError if there is none."""
    if callable(env):
        name = getattr(env, "__name__", type(env).__name__)
        found = EnvSpec(re.sub(r"\W", "", name), env)
    elif is_path(env):
        module, _, name = env.rpartition(":")
        if name.rpartition("-v")[2].isdigit():  # an id that the module registers
            import_module(module, "env_name")
            found = gymnasium.registry[_registered_id(name)]
        else:
            found = find_spec(import_named(env, "env_name"), {})
    else:
        found = gymnasium.registry[_registered_id(env)]
    return dataclasses.replace(found, kwargs={**found.kwargs, **env_kwargs})


def _registered_id(env: str) -> str:
    """Return an id that is registered with gymnasium, of the newest version if need be."""
    if env not in gymnasium.registry:
        import ale_py  # noqa: F401, registers its ids

        from ppo.envs.atari import without_frame_skip

        env = without_frame_skip(env)
    if env in gymnasium.registry:
        return env
    try:
        namespace, base, given = parse_env_id(env)
        version = find_highest_version(namespace, base)
    except gymnasium.error.Error:
        version = None
    if version is None or (given or 0) > version:
        raise ConfigError(f"--env_name={env} is unknown{suggest(env, gymnasium.registry)}")
    return get_env_id(namespace, base, version)


def takes(function: Callable[..., Any], name: str) -> bool:
    """Return whether a class or function has a parameter of this name."""
    try:
        return name in signature(function).parameters
    except (TypeError, ValueError):
        return False


@dataclass(frozen=True)
class EnvMaker:
    """Make the environments of a run, in any process. A function with the parameter index is given
    the environment's number."""

    config: "Config"

    @cached_property
    def spec(self) -> EnvSpec:
        """What gymnasium knows of the environment. Raises ConfigError if there is none."""
        return find_spec(self.config.env_name, self.config.env_kwargs)

    def __call__(
        self, index: int = 0, render_mode: str | None = None, limit: int | None = None
    ) -> Env:
        """Make an environment whose last infos of episodes have their returns and lengths. limit:
        steps after which an episode is truncated if nothing else limits it."""
        config, spec = self.config, self.spec
        if self.is_atari:
            from ppo.envs.atari import make_game

            return make_game(spec, config, self._wrap, render_mode)
        kwargs = {**spec.kwargs, **({"render_mode": render_mode} if render_mode else {})}
        if takes(self.creator, "index"):
            kwargs.setdefault("index", index)
        steps = config.max_episode_steps or (None if spec.max_episode_steps else limit)
        spec = dataclasses.replace(spec, kwargs=kwargs, entry_point=self.creator)
        # gymnasium's own checker would cost time in every step.
        env = self._wrap(gymnasium.make(spec, steps, disable_env_checker=True))
        if config.frame_skip != "auto" and config.frame_skip > 1:
            env = RepeatAction(env, config.frame_skip)
        return RecordEpisode(env)

    @cached_property
    def creator(self) -> Callable[..., Any]:
        """The class or function that makes the environment. Raises ConfigError if it is no Env, or
        does not take env_kwargs."""
        entry, name = self.spec.entry_point, self.spec.id
        try:
            found: Any = load_env_creator(entry) if isinstance(entry, str) else entry
            number = {"index": 0} if takes(found, "index") else {}
            signature(found).bind(**{**number, **self.spec.kwargs})
        except ImportError as error:
            raise ConfigError(f"--env_name={name} needs a package ({reason(error)})") from error
        except TypeError as error:
            raise ConfigError(f"--env_kwargs of --env_name={name}: {error}") from error
        except ValueError:  # of builtins
            return found
        if isinstance(found, type) and not issubclass(found, Env):
            raise ConfigError(f"--env_name={name} is not a subclass of gymnasium.Env")
        return found

    @property
    def is_atari(self) -> bool:
        """Whether the environment is a game of the Atari emulator, observed as images."""
        if not str(self.spec.entry_point).startswith("ale_py"):
            return False
        from ppo.envs.atari import is_game

        return is_game(self.spec)

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
        raise EnvironmentFailed(
            f"environment {what} raised {reason(error)}", traceback.format_exc()
        ) from error


@dataclass(frozen=True)
class Spaces:
    """What a run knows of its environments, and what makes them.

    has_masks: whether infos have action masks; columns: the class of ppo.envs.columns that steps
    environments of this kind; reward_threshold: the return at which the environment's registration
    counts it as solved."""

    make_env: EnvMaker
    observations: Space[Any]
    actions: Space[Any]
    has_masks: bool
    columns: Any
    reward_threshold: float | None = None

    @property
    def config(self) -> "Config":
        """The settings of the run."""
        return self.make_env.config

    @cached_property
    def layout(self) -> Layout:
        """How observations are kept in tables."""
        return Layout(self.observations, self.config)

    def with_config(self, config: "Config") -> "Spaces":
        """Return the same with other settings."""
        return dataclasses.replace(self, make_env=EnvMaker(config))


def look(config: "Config") -> Spaces:
    """Make an environment, reset it and, if all actions are allowed, take a random step: a first
    look, before workers do the same. Raises ConfigError for what cannot be used."""
    from ppo.envs.columns import SingleColumns, check_finite

    make_env = EnvMaker(config)
    name = make_env.spec.id
    with calling(name):
        env: Any = make_env()
    try:
        check_spaces(name, env)
        read = Reader(Layout(env.observation_space, config))
        to_mask = mask_converter(env.action_space)
        with calling(name, bad=ConfigError):
            observation, info = env.reset(seed=0)
            check_finite(read(observation))
            has_masks = ACTION_MASK in info and to_mask(info[ACTION_MASK]).size > 0
            if not has_masks:
                env.action_space.seed(0)
                observation, reward, *_ = env.step(env.action_space.sample())
                check_finite({**read(observation), "rewards": np.asarray(reward)})
    finally:
        close(env)
    threshold = env.spec.reward_threshold if env.spec else None
    spaces = (env.observation_space, env.action_space)
    return Spaces(make_env, *spaces, has_masks, SingleColumns, threshold)


def check_spaces(name: str, env: Any) -> None:
    """Raise ConfigError if no policy can use an environment's spaces."""
    observes = getattr(env, "observation_space", None)
    acts = getattr(env, "action_space", None)
    is_usable = (
        isinstance(observes, Space)
        and isinstance(acts, Space)
        and holds_numbers(acts)
        and any(holds_numbers(leaf) for _, leaf in leaves(observes))
    )
    if not is_usable:
        raise ConfigError(
            f"environment {name} observes {observes} and acts in {acts}: both must be spaces of "
            "gymnasium that hold a fixed number of numbers"
        )


def close(env: Any) -> None:
    """Close an environment, whatever it raises."""
    try:
        env.close()
    except BaseException:  # closing must not end anything
        return
