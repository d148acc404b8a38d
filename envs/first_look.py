"""Inspect an environment before training: spaces, action masks, warnings, reward threshold."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

from gymnasium import Env
from gymnasium.spaces import Box

from ppo.envs.checks import CheckData
from ppo.envs.env_kwargs import tasks_of
from ppo.envs.episodes import close_env, layers
from ppo.envs.errors import EnvironmentUnavailable, InvalidEnvOutput, ManyMade
from ppo.envs.isolation import ISOLATION
from ppo.envs.lookup import explained_errors, find_family
from ppo.envs.make import as_it_is, make_env, preprocess
from ppo.envs.make_columns import make_columns
from ppo.envs.reward_terms import read_terms
from ppo.envs.spaces import ACTION_MASK, leaves
from ppo.envs.teams import Team

PURPOSE = "the first look"
Form = Literal["single", "batch", "team"]


class Spaces(NamedTuple):
    """What a run needs to know of an environment.

    has_masks: whether infos have action masks; warnings: for the environment's author;
    reward_threshold: the return at which its registration counts it as solved; form: whether one
    environment is made at a time, a batch of them, or a team of team_size agents; has_absent:
    whether there may be steps that are not to be learned from."""

    observations: Box
    actions: Any
    has_masks: bool
    warnings: tuple[str, ...] = ()
    reward_threshold: float | None = None
    form: Form = "single"
    team_size: int = 1
    has_absent: bool = False
    shown: Any = None

    def is_like(self, other: "Spaces") -> bool:
        """Return whether one policy fits both: the same numbers are observed and the same actions
        taken. The bounds of observations and the precision of numbers may differ."""
        return (
            self.has_masks == other.has_masks
            and _shapes(self.observations) == _shapes(other.observations)
            and _choices(self.actions) == _choices(other.actions)
        )


def find_env(config):
    """Call find_family in the isolated process, and apply the config's timeouts to that process.

    Raises EnvironmentUnavailable, or WorkerError if the environment crashes or hangs."""
    ISOLATION.set_timeouts(config.step_timeout, config.reset_timeout)
    env_name = config.env_name
    env_kwargs = tasks_of(config.env_kwargs)[0]
    return ISOLATION.call(PURPOSE, env_name, find_family, env_name, env_kwargs)


def spaces_of(config) -> Spaces:
    """Call probe_all in the isolated process.

    Raises EnvironmentUnavailable if the environment cannot be made or its spaces differ by task,
    WorkerError if it raises, crashes or hangs."""
    return ISOLATION.call(PURPOSE, config.env_name, probe_all, config)


def probe_all(config) -> Spaces:
    """Inspect an environment of each task, and that of --eval_env.

    Raises EnvironmentUnavailable if one cannot be made or their spaces differ, WorkerError for
    what a reset and a step raise or return."""
    tasks = tasks_of(config.env_kwargs)
    first, *others = [probe_env(config, index) for index in range(len(tasks))]
    if config.eval_env:
        evaluated = SimpleNamespace(**{**vars(config), "env_name": config.eval_env})
        others.append(probe_env(evaluated, 0))
    if not all(first.is_like(other) for other in others):
        raise EnvironmentUnavailable(
            f"--env_name={config.env_name} has other spaces or masks by --eval_env, or in the list "
            "of --env_kwargs: give environments that are observed and acted in alike"
        )
    return first


def probe_env(config, index: int) -> Spaces:
    """Make an environment, reset it, and take a step, at random if all actions are allowed."""
    try:
        made = make_env(config, index, as_it_is)
    except ManyMade:
        return probe_columns(config, index)
    with explained_errors(config.env_name):
        env: Any = preprocess(config, made)
        _, info = env.reset(seed=0)
        has_masks = _has_masks(env, info)
        if not has_masks:
            env.action_space.seed(0)
            *_, info = env.step(env.action_space.sample())
            read_terms(info, config.reward_term)
    warnings = _warnings(config, *_conversions(env), close_env(env))
    threshold = env.spec.reward_threshold if env.spec else None
    return Spaces(
        env.observation_space,
        env.action_space,
        has_masks,
        warnings,
        threshold,
        shown=made.observation_space,
    )


def probe_columns(config, index: int) -> Spaces:
    """Do the same with a batch of one environment, or with a team."""
    columns = make_columns(config, [index], [0], finish=as_it_is)
    batch: Any = columns.batch
    size = len(columns.envs)
    with explained_errors(config.env_name):
        columns.reset([0] * size)
        if not columns.present.any():
            raise InvalidEnvOutput("no agent is there after its reset")
        column = columns.envs[int(columns.present.argmax())]
        env: Any = preprocess(config, column)
        _, info = env.reset()
        has_masks = _has_masks(env, info)
        if not has_masks:
            env.action_space.seed(0)
            columns.step([env.action_space.sample() for _ in columns.envs])
            env.step(None)
    return Spaces(
        env.observation_space,
        env.action_space,
        has_masks,
        _warnings(config, *_conversions(env), close_env(columns), batch.note),
        batch.spec.reward_threshold,
        form="team" if isinstance(batch, Team) else "batch",
        team_size=size,
        has_absent=batch.present is not None,
        shown=column.observation_space,
    )


def _has_masks(env: Env, info) -> bool:
    return ACTION_MASK in info and not isinstance(env.action_space, Box)


def _conversions(env: Env) -> Iterator[str]:
    """Yield what an environment should return instead of what it has returned."""
    for layer in layers(env):
        if isinstance(layer, CheckData):
            yield from layer.conversions.values()


def _warnings(config, *problems: str) -> tuple[str, ...]:
    """Return a warning for the author of an environment of each problem but ""."""
    return tuple(f"environment {config.env_name}: {problem}" for problem in problems if problem)


def _shapes(observations) -> dict[str, tuple[Any, ...]]:
    """Return shape and kind of dtype of each part of observations, by name."""
    parts = getattr(observations, "parts", {"": observations})
    return {name: (box.shape, box.dtype.kind) for name, box in parts.items()}


def _choices(actions) -> list[tuple[Any, ...]]:
    """Return what describes each leaf of an action space, but the precision of numbers."""
    return [
        (path, leaf.shape, leaf.dtype.kind, leaf.low.tolist(), leaf.high.tolist())
        if isinstance(leaf, Box)
        else (path, leaf)
        for path, leaf in leaves(actions)
    ]
