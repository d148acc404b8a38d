"""Evaluate a policy by whole episodes."""

from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import count
from statistics import fmean
from typing import Any

import numpy as np
from gymnasium import Env

from ppo.config.config import Config
from ppo.envs.columns import Columns
from ppo.envs.episodes import WHOLE_EPISODE, episode_metrics
from ppo.envs.heartbeat import HEARTBEAT
from ppo.run.summary import Evaluation

Act = Callable[..., Sequence[Any]]
MAX_STEPS = Config.eval_max_steps  # longer than the time limit of any usual environment


def evaluate(
    act: Act,
    envs: Sequence[Env],
    seeds: Sequence[int],
    *,
    state_size: int = 0,
    max_steps: int = MAX_STEPS,
) -> Evaluation:
    """Play one whole episode for each seed, in several environments side by side.

    act: maps observations (n, *observation), n infos and recurrent states (n, S) to n actions, and
    overwrites the states by the next ones. envs: preprocessed as in training. An episode that
    is not over after max_steps is cut off, and counts with its return so far."""
    returns = [0.0] * len(seeds)
    lengths = [0] * len(seeds)
    reported: dict[str, list[float]] = {}
    ends: list[bool] = []  # for each played episode: False if it was cut off
    waiting = iter(enumerate(seeds))  # an environment that is free takes the next one

    def play(env: Env) -> Generator[Any, Any, None]:
        """Yield (observation, info, state) for each action; receive it and the next state."""
        for episode, seed in waiting:
            is_over = True  # the episode begins, or a life was lost and the game continues
            info: dict[str, Any] = {}
            while WHOLE_EPISODE not in info and lengths[episode] < max_steps:
                if is_over:
                    observation, info = env.reset(seed=seed)
                    state = np.zeros(state_size, np.float32)
                action, state = yield observation, info, state
                observation, reward, terminated, truncated, info = env.step(action)
                is_over = terminated or truncated
                returns[episode] += float(reward)
                lengths[episode] += 1
            ends.append(WHOLE_EPISODE in info)
            if WHOLE_EPISODE in info:
                returns[episode], lengths[episode] = info[WHOLE_EPISODE]
            for name, value in episode_metrics(info).items():
                reported.setdefault(name, []).append(value)

    players: dict[Any, Any] = {player: next(player) for player in map(play, envs[: len(seeds)])}
    while players:
        observations, infos, states = map(list, zip(*players.values(), strict=True))
        next_states = np.stack(states)
        actions = act(np.stack(observations), infos, next_states)
        for player, *answer in zip([*players], actions, next_states, strict=True):
            try:
                players[player] = player.send(answer)
            except StopIteration:
                del players[player]
        HEARTBEAT.report_progress(len(ends))
    return summarize(returns, lengths, ends.count(False), reported)


def evaluate_columns(
    act: Act,
    columns: Columns,
    seeds: Sequence[int],
    *,
    state_size: int = 0,
    max_steps: int = MAX_STEPS,
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
    while any(shares):
        for i in np.flatnonzero(begun):
            observations[i], infos[i] = columns.envs[i].reset()
            states[i] = 0
        columns.step(act(observations, infos, states))
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
        HEARTBEAT.report_progress(num_played)
    return summarize(returns, lengths, num_unfinished, reported)


def summarize(
    returns: list[float],
    lengths: list[int],
    num_unfinished: int,
    reported: Mapping[str, Sequence[float]],
) -> Evaluation:
    """Return the result of episodes. reported: the environment's own metrics, by name."""
    return Evaluation(
        episodes=len(returns),
        mean=float(np.mean(returns)) if returns else None,
        std=float(np.std(returns)) if returns else None,
        returns=returns,
        lengths=lengths,
        unfinished=num_unfinished,
        env={name: fmean(values) for name, values in reported.items()},
    )
