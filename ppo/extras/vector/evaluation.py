"""Evaluate a policy in a batch of environments, or a team of agents."""

from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np

from ppo.config.config import Config
from ppo.envs.episodes import WHOLE_EPISODE, close_env, episode_metrics
from ppo.errors import ConfigError
from ppo.extras.vector.columns import Columns
from ppo.extras.vector.make import make_columns, make_one_column
from ppo.guard import OnProgress, ignore
from ppo.policy.evaluation import MAX_STEPS, Act, evaluate_envs, summarize
from ppo.policy.policy import Policy
from ppo.policy.spectators import Spectator, show
from ppo.run.summary import Evaluation


def evaluate_batch(
    config: Config,
    policy: Policy,
    seeds: Sequence[int],
    *,
    spectators: Sequence[Spectator],
    **options: Any,
) -> Evaluation:
    """Make a batch of num_envs environments by a config, and play whole episodes in it; where there
    are spectators, in batches of one. Arguments and errors are those of evaluate_envs."""
    if spectators:
        options |= {"spectators": spectators, "make": make_one_column}
        return evaluate_envs(config, policy, seeds, **options)
    return evaluate_team(config, policy, seeds, spectators=spectators, **options)


def evaluate_team(
    config: Config,
    policy: Policy,
    seeds: Sequence[int],
    *,
    num_envs: int,
    spectators: Sequence[Spectator],
    **options: Any,
) -> Evaluation:
    """Do the same in as many teams as have num_envs agents. Raises ConfigError if they would have
    to be wrapped."""
    for spectator in spectators:
        if spectator.wraps:
            raise ConfigError(
                f"--{spectator.option}: it cannot be done of a team of agents: leave it out"
            )
    columns = columns_for(policy, seeds[:num_envs], config)
    try:
        policy.check_plays(columns.envs[0])
        options["state_size"] = policy.actor.state_size
        return evaluate_columns(columns, seeds, spectators=spectators, **options)
    finally:
        close_env(columns)


def columns_for(policy: Policy, seeds: Sequence[int], config: Config | None = None) -> Columns:
    """Make a batch for a policy with an environment for each seed, or as many teams as have so many
    agents. seeds: of the first episodes; config: of environments like those of training, by
    default. Raises as make_columns does, CheckpointError if none can be made."""
    config = config or policy.environment_config()
    first = policy.first_index(config)
    columns = make_columns(config, range(first, first + len(seeds)), seeds)
    columns.batch.set_training(policy.env_attributes)
    return columns


def evaluate_columns(
    columns: Columns,
    seeds: Sequence[int],
    *,
    act: Act,
    state_size: int = 0,
    max_steps: int = MAX_STEPS,
    spectators: Sequence[Spectator] = (),
    on_progress: OnProgress = ignore,
) -> Evaluation:
    """Play whole episodes in a batch or a team: one for each seed, of which each column has a fixed
    share, so that short episodes do not count more than long ones.

    Arguments and result: as those of evaluate; an episode of a team is that of one agent. After an
    episode that is cut off, its column plays no others; they are counted as cut off, too."""
    num_columns = len(columns.envs)
    shares = [[*range(len(seeds))[i::num_columns]] for i in range(num_columns)]
    returns = [0.0] * len(seeds)
    lengths = [0] * len(seeds)
    reported: dict[str, list[float]] = {}
    num_unfinished = 0
    num_played = 0
    later = count(1)  # for episodes beyond a column's share

    def seed_of(i: int) -> int:
        """Return the seed of a column's next episode, which may be beyond its share."""
        return seeds[shares[i][0]] if shares[i] else (seeds[0] + next(later)) % 2**32

    columns.reset([seed_of(i) for i in range(num_columns)])
    space: Any = columns.envs[0].observation_space
    observations = np.zeros((num_columns, *space.shape), space.dtype)
    infos: list[dict[str, Any]] = [{} for _ in range(num_columns)]
    states = np.zeros((num_columns, state_size), np.float32)
    begun = columns.present
    show(columns, spectators)
    while any(shares):
        for i in np.flatnonzero(begun):
            observations[i], infos[i] = columns.envs[i].reset()
            states[i] = 0
        columns.step(act(observations, infos, states))
        show(columns, spectators)
        ended = np.zeros(num_columns, np.bool_)
        for i in np.flatnonzero(columns.present).tolist():
            result = columns.envs[i].step(None)
            observations[i], reward, terminated, truncated, infos[i] = result
            ended[i] = terminated or truncated
            if not shares[i]:
                continue
            episode = shares[i][0]
            returns[episode] += float(reward)
            lengths[episode] += 1
            if ended[i]:
                returns[episode], lengths[episode] = infos[i][WHOLE_EPISODE]
                for name, value in episode_metrics(infos[i]).items():
                    reported.setdefault(name, []).append(value)
                del shares[i][0]
                num_played += 1
            elif lengths[episode] >= max_steps:
                num_unfinished += len(shares[i])
                shares[i].clear()
        begun = columns.restart(ended, [seed_of(i) for i in np.flatnonzero(ended).tolist()])
        on_progress(num_played)
    return summarize(returns, lengths, num_unfinished, reported)
