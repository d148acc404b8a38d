"""Examine a batch of environments, or a team of agents, before training on it."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ppo.envs.episodes import WHOLE_EPISODE, close_env
from ppo.extras.tools.random_play import (
    NOT_REPEATED,
    SECONDS,
    Found,
    RandomPlay,
    duration,
    is_same,
    record_findings,
    sample,
)
from ppo.extras.vector.columns import Columns
from ppo.extras.vector.make import make_columns
from ppo.extras.vector.teams import Team
from ppo.guard import OnProgress, ignore

if TYPE_CHECKING:
    from ppo.config.config import Config

NUM_COLUMNS = 8  # environments of a batch, or agents of teams, that are played at most


def findings_of_columns(
    config: "Config", seed: int, seconds: float, found: Found, on_progress: OnProgress
) -> Iterator[str]:
    """Yield lines for the user about the batch or the team that a config makes, and note the rest
    in found. Other arguments and errors are those of ppo.extras.tools.check.findings."""
    indices = range(min(config.num_envs, NUM_COLUMNS))

    def make() -> Columns:
        return make_columns(config, indices, [seed + index for index in indices])

    start = time.perf_counter()
    columns = make()
    found.make_seconds = (time.perf_counter() - start) / len(columns.envs)
    batch = columns.batch
    if isinstance(batch, Team):
        size = len(batch.agents)
        yield f"form: a team of {size} agents ({', '.join(map(str, batch.agents))}), a column each"
        what = f"{len(batch.copies)} copies of the team"
    else:
        yield f"form: a batch ({type(batch).__name__})"
        what = f"{len(columns.envs)} environments"
    record = play_columns(columns, seed, on_progress=on_progress)
    found.time_steps(record, len(columns.envs))
    taken = time.perf_counter() - start
    yield (
        f"a step of {what} takes {duration(record.step_seconds)}, a reset of some of them "
        f"{duration(record.reset_seconds)}"
    )
    if 2 * taken > seconds:
        yield NOT_REPEATED
    elif is_same(record, play_columns(make(), seed, on_progress=on_progress)):
        yield (
            "the same seeds and actions lead to the same: runs repeat themselves; a resumed run "
            "begins new episodes, and is exact but for that"
        )
    else:
        yield "warning: the same seeds and actions lead elsewhere: runs do not repeat themselves"
    yield from record_findings(record, columns.envs[0].observation_space, config, found)
    if batch.note:
        yield f"warning: environment {config.env_name}: {batch.note}"
    elif any(is_truncated for *_, is_truncated in record.episodes):
        yield "truncated episodes end with their own last observation: their values are exact"


def play_columns(
    columns: Columns, seed: int, num_steps: int = 1_000, on_progress: OnProgress = ignore
) -> RandomPlay:
    """Do what ppo.extras.tools.random_play.play does in all columns of a batch or a team, until
    they have num_steps steps together, and close them.

    Rewards and observations of the record are those of columns that are present, column by column
    within a step; step_seconds and reset_seconds are of all columns at once."""
    record = RandomPlay([], [], [], [], [])
    envs = columns.envs
    envs[0].action_space.seed(seed)
    infos: list[dict[str, Any]] = [{} for _ in envs]

    def begin(begun: np.ndarray) -> None:
        """Read the first observations of the episodes that begin in some columns (n,) bool."""
        for i in np.flatnonzero(begun):
            observation, infos[i] = envs[i].reset()
            record.observations.append(np.array(observation))

    start = time.perf_counter()
    columns.reset(range(seed, seed + len(envs)))
    record.reset_seconds.append(time.perf_counter() - start)
    begin(columns.present)
    deadline = time.perf_counter() + SECONDS
    while len(record.rewards) < num_steps and time.perf_counter() < deadline:
        actions = [sample(envs[0].action_space, info) for info in infos]
        start = time.perf_counter()
        columns.step(actions)
        record.step_seconds.append(time.perf_counter() - start)
        on_progress(len(record.rewards))
        ended = np.zeros(len(envs), np.bool_)
        for i in np.flatnonzero(columns.present):
            observation, reward, terminated, truncated, infos[i] = envs[i].step(None)
            record.observations.append(np.array(observation))
            record.rewards.append(float(reward))
            ended[i] = terminated or truncated
            if ended[i]:
                record.episodes.append((*infos[i][WHOLE_EPISODE], not terminated))
        first_seed = seed + len(record.rewards)
        start = time.perf_counter()
        begun = columns.restart(ended, range(first_seed, first_seed + int(ended.sum())))
        if ended.any():
            record.reset_seconds.append(time.perf_counter() - start)
        begin(begun)
    close_env(columns)
    return record
