"""Inspect a batch of environments, or a team of agents, before training."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gymnasium.vector import VectorWrapper

from ppo.envs.env_kwargs import about_wrapper
from ppo.envs.episodes import close_env
from ppo.envs.inspection import problems_of
from ppo.envs.lookup import explained_errors
from ppo.envs.make import as_it_is, preprocess
from ppo.envs.probe import Spaces, has_masks, warnings_of
from ppo.extras.vector.make import make_columns
from ppo.extras.vector.teams import Team

if TYPE_CHECKING:
    from ppo.config.config import Config


def look_at(config: "Config", index: int) -> Spaces:
    """Make a batch of one environment, or a team, reset it, and take a step. Raises as make_columns
    does."""
    columns = make_columns(config, [index], [0], finish=as_it_is)
    batch: Any = columns.batch
    size = len(columns.envs)
    with explained_errors(config.env_name):
        columns.reset([0] * size)
        column = columns.envs[int(columns.present.argmax())]
        env: Any = preprocess(config, column)
        _, info = env.reset()
        is_masked = has_masks(env, info)
        if not is_masked:
            env.action_space.seed(0)
            columns.step([env.action_space.sample() for _ in columns.envs])
            env.step(None)
    return Spaces(
        env.observation_space,
        env.action_space,
        is_masked,
        warnings_of(config, *problems_of(env), *_wrappers(batch), close_env(columns), batch.note),
        batch.spec.reward_threshold,
        form="team" if isinstance(batch, Team) else "batch",
        team_size=size,
        has_absent=batch.present is not None,
        shown=column.observation_space,
    )


def _wrappers(batch: Any) -> Iterator[str]:
    """Yield what there is to say of wrappers around a vector environment."""
    env = getattr(batch, "env", None)
    while isinstance(env, VectorWrapper):
        yield about_wrapper(type(env))
        env = env.env
