"""Make a single environment, with all wrappers."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium import Env, Space, Wrapper
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, flatdim

from ppo.envs.env_kwargs import fill_in, tasks_of, wrap
from ppo.envs.episodes import Info, RecordEpisode, StepResult, close_env
from ppo.envs.errors import EnvironmentUnavailable, OtherForm
from ppo.envs.forms import SINGLE, form_of
from ppo.envs.frame_skip import RepeatAction, stack_vectors
from ppo.envs.heartbeat import CLOSE, HEARTBEAT, RENDER, RESET, START, STEP
from ppo.envs.inspection import inspected
from ppo.envs.lookup import explained_errors, look_up, takes
from ppo.envs.observations import ObserveParts, kind_of, num_numbers
from ppo.envs.spaces import MAX_SIZE, holds_numbers, leaves
from ppo.extensions import functions_of

if TYPE_CHECKING:
    from ppo.config.config import Config

Finish = Callable[["Config", Env], Env]


def preprocess(config: "Config", env: Env) -> Env:
    """Join the parts of an environment's observations in one Box, unless they are one of numbers
    already, and stack them.

    config: as in make_env."""
    frame_stack = config.frame_stack
    space = env.observation_space
    is_vector = isinstance(space, Box) and space.shape and kind_of(space, config.image) == "numbers"
    has_images = False
    if not is_vector:
        num_images = 4 if frame_stack == "auto" else frame_stack
        env = ObserveParts(env, config.image, config.screen_size, num_images)
        has_images = bool(env.stacks)  # which it has stacked
    if frame_stack != "auto" and frame_stack > 1 and not has_images:
        env = stack_vectors(env, frame_stack)
    return env


def as_it_is(config: "Config", env: Env) -> Env:
    """Return an environment whose observations are not preprocessed, in place of preprocess."""
    return env


def make_env(config: "Config", index: int = 0, finish: Finish = preprocess) -> Env:
    """Make an environment with all wrappers, whose observations are arrays in one Box.

    config: resolved, of which the flags of EnvironmentFlags are used; index: the environment's
    number in the whole run, which --env_kwargs may contain, and which a class or function with a
    parameter of this name is given; finish: makes what the policy sees from (config, environment),
    whose observations are still as the environment gives them.
    Raises EnvironmentUnavailable if there is none, if a package is missing, or if its spaces are of
    a kind that no policy can use, OtherForm if it is no gymnasium.Env; WorkerError if it raises."""
    env_name = config.env_name
    tasks = tasks_of(config.env_kwargs)
    env_kwargs = fill_in(tasks[index % len(tasks)], index)
    with explained_errors(env_name, env_kwargs):
        spec, family = look_up(env_name, env_kwargs)
        HEARTBEAT.beat(START)
        if takes(spec.entry_point, "index"):
            spec.kwargs.setdefault("index", index)
        if family:
            env = wrap_by_extensions(config, family.make(spec, config))
        else:
            env = _make_checked(spec, config)
        env = finish(config, env)
        return Watched(env) if HEARTBEAT.is_watched else env


def _make_checked(spec: EnvSpec, config: "Config") -> Env:
    """Make an environment with the user's wrappers, inspectors, RepeatAction and RecordEpisode."""
    entry_point: Any = spec.entry_point
    is_env_class = isinstance(entry_point, type) and issubclass(entry_point, Env)
    if not isinstance(entry_point, str) and not is_env_class:
        spec = dataclasses.replace(spec, entry_point=partial(_make_single, spec.id, entry_point))

    # gymnasium's own checker would cost time at every step.
    env = gymnasium.make(spec, config.max_episode_steps, disable_env_checker=True)
    if any(hasattr(env.unwrapped, name) for name in ("num_envs", "all_env_ids")):
        raise TypeError("it must inherit from the gymnasium.Env class, and be one, not many")
    env = wrap(env, config.wrapper)
    check_spaces(config, env)
    env = wrap_by_extensions(config, inspected(config, env))
    frame_skip = int(config.frame_skip)
    if frame_skip > 1:
        env = RepeatAction(env, frame_skip)
    return RecordEpisode(env)


def wrap_by_extensions(config: "Config", env: Env) -> Env:
    """Put the wrappers of extensions around an environment."""
    for add_wrapper in functions_of("wrap"):
        env = add_wrapper(config, env)
    return env


def _make_single(name: str, make: Callable[..., Any], /, **kwargs: Any) -> Env:
    """Return what a user's class or function makes. Raises OtherForm."""
    made = make(**kwargs)
    if not isinstance(made, Env):
        form = form_of(EnvSpec(name, make), made)
        if form != SINGLE:
            close_env(made)
            error = OtherForm(f"{name} makes no gymnasium.Env, but a {form}")
            error.form = form
            raise error
    return made


def check_spaces(config: "Config", env: Any) -> None:
    """Raise EnvironmentUnavailable if no policy can use an environment's spaces."""
    observes = getattr(env, "observation_space", None)
    actions = getattr(env, "action_space", None)
    about = f"--env_name={config.env_name} observes {observes} and acts in {actions}"
    if not (isinstance(observes, Space) and isinstance(actions, Space)):
        raise EnvironmentUnavailable(f"{about}: give it both spaces, of gymnasium.spaces")
    can_observe = any(holds_numbers(leaf) for _, leaf in leaves(observes))
    if not (can_observe and holds_numbers(actions)):
        raise EnvironmentUnavailable(
            f"{about}, one of which has no fixed size or holds no number: choose another "
            "environment"
        )
    num_stacked = 1 if config.frame_stack == "auto" else config.frame_stack
    for kind, numbers in (
        ("observations", num_stacked * num_numbers(observes, config.image)),
        ("actions", flatdim(actions)),
    ):
        if numbers > MAX_SIZE:
            raise EnvironmentUnavailable(
                f"{about}: its {kind} of {numbers:,} numbers are too large, at most {MAX_SIZE:,} "
                "are allowed; choose another environment, or a wrapper that has less"
            )
    for _, leaf in (*leaves(observes), *leaves(actions)):
        if isinstance(leaf, Box) and not (leaf.low <= leaf.high).all():
            raise EnvironmentUnavailable(
                f"{about}: nothing is in {leaf}, whose bounds are not in order or no numbers"
            )


class Watched(Wrapper):
    """Send a heartbeat at every call of an environment."""

    def reset(self, **options: Any) -> tuple[Any, Info]:
        HEARTBEAT.beat(RESET)
        return self.env.reset(**options)

    def step(self, action: Any) -> StepResult:
        HEARTBEAT.beat(STEP)
        return self.env.step(action)

    def render(self) -> Any:
        HEARTBEAT.beat(RENDER)
        return self.env.render()

    def close(self) -> None:
        HEARTBEAT.beat(CLOSE)
        self.env.close()
