"""Make a batch of environments, or a team of agents, each of whose columns has all wrappers."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium import Env
from gymnasium.envs.registration import EnvSpec

from ppo.envs.env_kwargs import fill_in, tasks_of
from ppo.envs.episodes import RecordEpisode, close_env
from ppo.envs.errors import EnvironmentUnavailable
from ppo.envs.heartbeat import HEARTBEAT, START
from ppo.envs.inspection import inspected
from ppo.envs.lookup import explained_errors, look_up, takes
from ppo.envs.make import Finish, check_spaces, preprocess
from ppo.extensions import added_columns
from ppo.extras.vector.adapters import adapt
from ppo.extras.vector.batches import Batch
from ppo.extras.vector.columns import Columns, OneColumn
from ppo.extras.vector.teams import Team, agents_of

if TYPE_CHECKING:
    from ppo.config.config import Config


def is_batch(spec: EnvSpec, made: Any = None) -> bool:
    """Return whether a spec makes batches: its class or function has a parameter "num_envs", or it
    has nothing but a vector entry point."""
    return made is None and (spec.entry_point is None or takes(spec.entry_point, "num_envs"))


def is_team(spec: EnvSpec, made: Any) -> bool:
    """Return whether what was made is a ParallelEnv, or something alike."""
    return hasattr(made, "possible_agents") and not hasattr(made, "agent_iter")


def make_columns(
    config: "Config",
    indices: Sequence[int],
    seeds: Sequence[int],
    beat: Callable[[int], None] = HEARTBEAT.beat,
    finish: Finish = preprocess,
) -> Columns:
    """Make a batch whose columns have all wrappers of make_env: as many as there are indices, or
    one team if that has more.

    config, finish: as in make_env; indices: of the columns in the whole run; seeds: of their first
    episodes, for batches that take them as they are made; beat: called before each call of the
    batch with an index in ppo.envs.heartbeat.CALLS. Raises as make_env does."""
    env_name = config.env_name
    with explained_errors(env_name):
        _check_flags(config)
        spec, _ = look_up(env_name, fill_in(tasks_of(config.env_kwargs)[0], indices[0]))
        beat(START)
        if is_batch(spec):
            batch: Batch = _make_batch(spec, config, indices, seeds)
        else:
            batch = _make_team(spec, config, indices)
        batch.spec = spec
        check_spaces(config, batch)

        def wrap(column: Env) -> Env:
            """Put the wrappers of a single environment around a column."""
            return finish(config, RecordEpisode(inspected(config, column)))

        return Columns(batch, wrap, beat)


def make_one_column(config: "Config", index: int, finish: Finish = preprocess) -> Env:
    """Make a batch of one environment, which is stepped as a single one.

    Raises as make_env does, EnvironmentUnavailable for a team."""
    columns = make_columns(config, [index], [0], finish=finish)
    if len(columns.envs) > 1:
        close_env(columns)
        raise EnvironmentUnavailable(
            f"{config.env_name} makes a team of agents, which is no gymnasium.Env: make it "
            "yourself, and ask policy.predict for the action of each agent"
        )
    return OneColumn(columns)


def _make_batch(
    spec: EnvSpec, config: "Config", indices: Sequence[int], seeds: Sequence[int]
) -> Batch:
    """Make a batch of as many environments as there are indices."""
    make: Any = spec.entry_point
    kwargs = {**spec.kwargs, "num_envs": len(indices)}
    limit = config.max_episode_steps
    if make is None:
        make = partial(gymnasium.make_vec, spec, vectorization_mode="vector_entry_point")
        kwargs = {"num_envs": len(indices)}
    offered = {"index": indices[0], "seeds": [*seeds], "max_episode_steps": limit}
    taken = {name: value for name, value in offered.items() if takes(make, name)}
    made = make(**{**taken, **kwargs})
    if isinstance(made, Batch):
        return made
    return adapt(made, None if "max_episode_steps" in taken else limit, len(indices))


def _make_team(spec: EnvSpec, config: "Config", indices: Sequence[int]) -> Team:
    """Make copies of a ParallelEnv, with an agent for each index; one if there are fewer."""
    make: Any = spec.entry_point
    copies: list[Any] = []
    start = 0
    while not copies or start < len(indices):
        kwargs = {**spec.kwargs, **fill_in(tasks_of(config.env_kwargs)[0], indices[start])}
        if takes(make, "index"):
            kwargs = {"index": indices[start], **kwargs}
        made = make(**kwargs)
        if not is_team(spec, made):
            raise TypeError("it must inherit from the gymnasium.Env class, or be a ParallelEnv")
        copies.append(made)
        start += len(agents_of(made))
    return Team(copies, config.max_episode_steps)


def _check_flags(config: "Config") -> None:
    """Raise EnvironmentUnavailable for flags that a batch or a team cannot obey."""
    flags = {
        f"frame_skip={config.frame_skip}": config.frame_skip not in ("auto", 1),
        f"wrapper={','.join(config.wrapper)}": bool(config.wrapper),
        "env_kwargs with a list of tasks": len(tasks_of(config.env_kwargs)) > 1,
    }
    flags |= {column.flag: True for column in added_columns(config).values()}
    for name, is_given in flags.items():
        if is_given:
            raise EnvironmentUnavailable(
                f"--{name}: {config.env_name} steps several environments at once, which cannot "
                "obey it: leave it out, or do it where they are made"
            )
