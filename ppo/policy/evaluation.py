"""Evaluate a policy by whole episodes."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from statistics import fmean
from typing import Any

import numpy as np
from gymnasium import Env

from ppo.config.config import Config
from ppo.envs.episodes import WHOLE_EPISODE, apply_task_params, close_env, episode_metrics
from ppo.envs.make import make_env, preprocess
from ppo.guard import OnProgress, ignore
from ppo.policy.spectators import Seen, Spectator
from ppo.run.summary import Evaluation

Act = Callable[..., Sequence[Any]]
MAX_STEPS = Config.eval_max_steps  # longer than the time limit of any usual environment


def evaluate_envs(
    config,
    policy,
    seeds: Sequence[int],
    *,
    act: Act,
    num_envs: int,
    max_steps: int,
    spectators: Sequence[Spectator] = (),
    on_progress: OnProgress = ignore,
    make: Callable[..., Env] = make_env,
) -> Evaluation:
    """Make environments by a config, and play an episode for each seed in them, num_envs side by
    side. Other arguments are those of Policy.evaluate, whose policy it is; make: as make_env.

    Raises as Policy.evaluate."""

    def finish(config, env: Env) -> Env:
        for spectator in spectators:
            env = spectator.wrap(env)
        return preprocess(config, env)

    first = policy.first_index(config)
    envs = []
    with ExitStack() as stack:
        for number in range(min(num_envs, len(seeds))):
            env = make(config, first + number, finish)
            stack.callback(close_env, env)
            apply_task_params(env, policy.env_attributes)
            envs.append(Seen(env, spectators) if spectators else env)
        policy.check_plays(envs[0])
        options = {"state_size": policy.actor.state_size, "max_steps": max_steps}
        return evaluate(act, envs, seeds, **options, on_progress=on_progress)


def evaluate(
    act: Act,
    envs: Sequence[Env],
    seeds: Sequence[int],
    *,
    state_size: int = 0,
    max_steps: int = MAX_STEPS,
    on_progress: OnProgress = ignore,
) -> Evaluation:
    """Play one whole episode for each seed, in several environments side by side.

    act: maps observations (n, *observation), n infos and recurrent states (n, S) to n actions, and
    overwrites the states by the next ones. envs: preprocessed as in training. An episode that
    is not over after max_steps is cut off, and counts with its return so far. on_progress: called
    with the number of episodes so far."""
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
        on_progress(len(ends))
    return summarize(returns, lengths, ends.count(False), reported)


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
