"""Inspect an environment before training: spaces, action masks, warnings, reward threshold."""

from collections.abc import Callable
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from gymnasium import Env, Space
from gymnasium.spaces import Box

from ppo.envs.env_kwargs import changing_wrappers, tasks_of
from ppo.envs.episodes import Info, close_env
from ppo.envs.errors import EnvironmentUnavailable
from ppo.envs.forms import SINGLE, in_its_form
from ppo.envs.inspection import problems_of
from ppo.envs.lookup import explained_errors, find_family
from ppo.envs.make import as_it_is, make_env, preprocess
from ppo.envs.spaces import ACTION_MASK, leaves
from ppo.extensions import added_columns
from ppo.guard import guard

if TYPE_CHECKING:
    from ppo.config.config import Config

PURPOSE = "the first look"


class Spaces(NamedTuple):
    """What a run needs to know of an environment.

    has_masks: whether infos have action masks; warnings: for the environment's author;
    reward_threshold: the return at which its registration counts it as solved; form: the name of
    that in which environments come (see ppo.envs.forms); team_size: how many come together;
    has_absent: whether there may be steps that are not to be learned from; shown: the space of
    observations before they are preprocessed; wrappers: those of --wrapper that change what is
    observed or done."""

    observations: Box
    actions: Space[Any]
    has_masks: bool
    warnings: tuple[str, ...] = ()
    reward_threshold: float | None = None
    form: str = SINGLE
    team_size: int = 1
    has_absent: bool = False
    shown: Space[Any] | None = None
    wrappers: tuple[str, ...] = ()

    def is_like(self, other: "Spaces") -> bool:
        """Return whether one policy fits both: the same numbers are observed and the same actions
        taken. The bounds of observations and the precision of numbers may differ."""
        return (
            self.has_masks == other.has_masks
            and _shapes(self.observations) == _shapes(other.observations)
            and _choices(self.actions) == _choices(other.actions)
        )


def find_env(config: "Config") -> tuple[str, str | None, dict[str, Any]]:
    """Call find_family by the guard. Raises EnvironmentUnavailable, or WorkerError if the
    environment crashes or hangs there."""
    env_kwargs = tasks_of(config.env_kwargs)[0]
    return guard().call(PURPOSE, config, find_family, config.env_name, env_kwargs)


def spaces_of(config: "Config") -> Spaces:
    """Call probe_all by the guard.

    Raises EnvironmentUnavailable if the environment cannot be made or its spaces differ by task,
    WorkerError if it raises, crashes or hangs."""
    return guard().call(PURPOSE, config, probe_all, config)


def probe_all(config: "Config") -> Spaces:
    """Inspect an environment of each task, and that of --eval_env.

    Raises EnvironmentUnavailable if one cannot be made or their spaces differ, WorkerError for
    what a reset and a step raise or return."""
    tasks = tasks_of(config.env_kwargs)
    first, *others = [in_its_form(config, "look", index) for index in range(len(tasks))]
    if config.eval_env:
        evaluated: Any = SimpleNamespace(**{**vars(config), "env_name": config.eval_env})
        others.append(in_its_form(evaluated, "look", 0))
    if not all(first.is_like(other) for other in others):
        raise EnvironmentUnavailable(
            f"--env_name={config.env_name} has other spaces or masks by --eval_env, or in the list "
            "of --env_kwargs: give environments that are observed and acted in alike"
        )
    return first


def look_at(config: "Config", index: int, make: Callable[..., Env] = make_env) -> Spaces:
    """Make an environment, reset it, and take a step, at random if all actions are allowed. make:
    as make_env, as which it raises."""
    made = make(config, index, as_it_is)
    with explained_errors(config.env_name):
        env: Any = preprocess(config, made)
        _, info = env.reset(seed=0)
        is_masked = has_masks(env, info)
        if not is_masked:
            env.action_space.seed(0)
            *_, info = env.step(env.action_space.sample())
            for column in added_columns(config).values():
                resolve_name(column.reader)(env)()  # raises if the environment reports no such
    warnings = warnings_of(config, *problems_of(env), close_env(env))
    threshold = env.spec.reward_threshold if env.spec else None
    return Spaces(
        env.observation_space,
        env.action_space,
        is_masked,
        warnings,
        threshold,
        shown=made.observation_space,
        wrappers=changing_wrappers(made),
    )


def has_masks(env: Env, info: Info) -> bool:
    """Return whether an info has a mask of actions that counts."""
    return ACTION_MASK in info and not isinstance(env.action_space, Box)


def warnings_of(config: "Config", *problems: str) -> tuple[str, ...]:
    """Return a warning for the author of an environment of each problem but ""."""
    return tuple(f"environment {config.env_name}: {problem}" for problem in problems if problem)


def _shapes(observations: Box) -> dict[str, tuple[Any, ...]]:
    """Return shape and kind of dtype of each part of observations, by name."""
    parts = getattr(observations, "parts", {"": observations})
    return {name: (box.shape, box.dtype.kind) for name, box in parts.items()}


def _choices(actions: Space[Any]) -> list[tuple[Any, ...]]:
    """Return what describes each leaf of an action space, but the precision of numbers."""
    return [
        (path, leaf.shape, leaf.dtype.kind, leaf.low.tolist(), leaf.high.tolist())
        if isinstance(leaf, Box)
        else (path, leaf)
        for path, leaf in leaves(actions)
    ]
