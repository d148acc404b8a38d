"""Evaluate a policy by whole episodes."""

from collections.abc import Callable, Generator, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from gymnasium import Env

from ppo.config.config import Config
from ppo.envs.episodes import WHOLE_EPISODE, episode_metrics
from ppo.envs.heartbeat import HEARTBEAT
from ppo.run.summary import Evaluation

MAX_STEPS = Config.eval_max_steps  # longer than the time limit of any usual environment


def evaluate(
    act: Callable[..., Sequence[Any]],
    envs: Sequence[Env],
    seeds: Sequence[int],
    *,
    state_size: int = 0,
    max_steps: int = MAX_STEPS,
) -> Evaluation:
    """Play one whole episode for each seed, in several environments side by side.

    act: maps observations (n, *observation), n infos and recurrent states (n, S) to n actions, and
    overwrites the states by the next ones. envs: as Policy.make_env returns them. An episode that
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
    return Evaluation(
        episodes=len(returns),
        mean=float(np.mean(returns)) if returns else None,
        std=float(np.std(returns)) if returns else None,
        returns=returns,
        lengths=lengths,
        unfinished=ends.count(False),
        env={name: fmean(values) for name, values in reported.items()},
    )
