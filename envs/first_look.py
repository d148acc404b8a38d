"""Inspect an environment before training: spaces, action masks, warnings, reward threshold."""

from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import numpy as np
from gymnasium.spaces import Box

from ppo.envs.checks import CheckData
from ppo.envs.columns import Column
from ppo.envs.env_kwargs import tasks_of
from ppo.envs.episodes import close_env, layers
from ppo.envs.errors import EnvironmentUnavailable
from ppo.envs.isolation import ISOLATION
from ppo.envs.make import explained_errors, find_family, make_columns, make_env
from ppo.envs.spaces import ACTION_MASK, leaves
from ppo.envs.teams import TeamMade

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
    eval_form: Form = "single"

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
    evaluated = first
    if config.eval_env:
        evaluated = probe_env(SimpleNamespace(**{**vars(config), "env_name": config.eval_env}), 0)
        others.append(evaluated)
    if not all(first.is_like(other) for other in others):
        raise EnvironmentUnavailable(
            f"--env_name={config.env_name} has other spaces or masks by --eval_env, or in the list "
            "of --env_kwargs: give environments that are observed and acted in alike"
        )
    return first._replace(eval_form=evaluated.form)


def probe_env(config, index: int) -> Spaces:
    """Make an environment, reset it, and take a step, at random if all actions are allowed."""
    try:
        env: Any = make_env(config, index)
    except TeamMade:
        return probe_team(config)
    with explained_errors(config.env_name):
        _, info = env.reset(seed=0)
        has_masks = ACTION_MASK in info and not isinstance(env.action_space, Box)
        if not has_masks:
            env.action_space.seed(0)
            env.step(env.action_space.sample())
    problems: list[str] = []
    for layer in layers(env):
        if isinstance(layer, CheckData):
            problems += layer.conversions.values()
    if problem := close_env(env):
        problems.append(problem)
    warnings = tuple(f"environment {config.env_name}: {problem}" for problem in problems)
    threshold = env.spec.reward_threshold if env.spec else None
    spaces = Spaces(env.observation_space, env.action_space, has_masks, warnings, threshold)
    if not isinstance(env.unwrapped, Column):
        return spaces
    batch = env.unwrapped.columns.batch
    if batch.note:
        warnings += (f"environment {config.env_name}: {batch.note}",)
    return spaces._replace(form="batch", warnings=warnings, has_absent=batch.present is not None)


def probe_team(config) -> Spaces:
    """Make a team, reset it, and take a step, at random if all actions are allowed."""
    seeds = [0]
    columns = make_columns(config, [0], seeds)
    first: Any = columns.envs[0]
    with explained_errors(config.env_name):
        columns.reset(seeds * len(columns.envs))
        (some, *_) = np.flatnonzero(columns.present)
        _, info = columns.envs[some].reset()
        has_masks = ACTION_MASK in info and not isinstance(first.action_space, Box)
        if not has_masks:
            first.action_space.seed(0)
            columns.step([first.action_space.sample() for _ in columns.envs])
            columns.envs[some].step(None)
    problems = [
        problem
        for layer in layers(columns.envs[some])
        if isinstance(layer, CheckData)
        for problem in layer.conversions.values()
    ]
    columns.close()
    return Spaces(
        first.observation_space,
        first.action_space,
        has_masks,
        tuple(f"environment {config.env_name}: {problem}" for problem in problems),
        form="team",
        team_size=len(columns.envs),
        has_absent=True,
    )


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
