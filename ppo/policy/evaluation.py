"""Play whole episodes with a policy that does not learn."""

from collections import deque
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Env

from ppo.envs.episodes import WHOLE_EPISODE, episode_metrics
from ppo.envs.heartbeat import HEARTBEAT

MAX_STEPS = 30_000  # of an episode: longer than the time limit of any usual environment


class Game(NamedTuple):
    """An episode in progress: its index, and the input of the next action."""

    env: Env
    episode: int
    observation: Any
    info: dict[str, Any]
    state: np.ndarray


def evaluate(
    act: Callable[..., Sequence[Any]],
    envs: Sequence[Env],
    seeds: Sequence[int],
    *,
    state_size: int = 0,
    max_steps: int = MAX_STEPS,
) -> dict[str, Any]:
    """Play one whole episode for each seed, in several environments side by side.

    act: from observations (n, *observation), n infos and states (n, S), which it overwrites by the
    next ones, to n actions. An episode that is not over after max_steps is cut off, and counts with
    its return so far. Returns the undiscounted, raw return and the length of each episode, the
    returns' mean and standard deviation, how many episodes are unfinished, and as "env" the mean of
    each of the environment's own metrics over the episodes that report it."""
    returns = [0.0] * len(seeds)
    lengths = [0] * len(seeds)
    waiting = deque(range(len(seeds)))
    num_unfinished = 0
    reported: dict[str, list[float]] = {}

    def start(env: Env, episode: int) -> Game:
        observation, info = env.reset(seed=seeds[episode])
        return Game(env, episode, observation, info, np.zeros(state_size, np.float32))

    games = [start(env, waiting.popleft()) for env in envs[: len(seeds)]]
    while games:
        observations = np.stack([game.observation for game in games])
        states = np.stack([game.state for game in games])
        actions = act(observations, [game.info for game in games], states)
        running = []
        for game, action, state in zip(games, actions, states, strict=True):
            observation, reward, terminated, truncated, info = game.env.step(action)
            returns[game.episode] += float(reward)
            lengths[game.episode] += 1
            is_cut_off = lengths[game.episode] >= max_steps
            if WHOLE_EPISODE in info:
                returns[game.episode], lengths[game.episode] = info[WHOLE_EPISODE]
            elif not is_cut_off:
                if terminated or truncated:  # a lost life, not the whole game
                    running.append(start(game.env, game.episode))
                else:
                    running.append(Game(game.env, game.episode, observation, info, state))
                continue
            num_unfinished += WHOLE_EPISODE not in info
            for name, value in episode_metrics(info).items():
                reported.setdefault(name, []).append(value)
            if waiting:
                running.append(start(game.env, waiting.popleft()))
        games = running
        HEARTBEAT.report_progress(len(seeds) - len(waiting) - len(games))
    return {
        "episodes": len(returns),
        "mean": float(np.mean(returns)) if returns else None,
        "std": float(np.std(returns)) if returns else None,
        "returns": returns,
        "lengths": lengths,
        "unfinished": num_unfinished,
        "env": {name: fmean(values) for name, values in reported.items()},
    }
