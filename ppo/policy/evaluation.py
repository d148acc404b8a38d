"""Evaluate a policy by whole episodes."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Env
from numpy import ndarray

from ppo.config.config import Config
from ppo.envs.episodes import WHOLE_EPISODE, close_env, episode_metrics, set_attributes
from ppo.envs.make import make_env, preprocess
from ppo.guard import OnProgress, ignore
from ppo.policy.spectators import Seen, Spectator
from ppo.run.summary import Evaluation

if TYPE_CHECKING:
    from ppo.policy.policy import Policy  # which evaluates by this

Act = Callable[..., Sequence[Any]]
MAX_STEPS = Config.eval_max_steps  # longer than the time limit of any usual environment


def evaluate_envs(
    config: Config,
    policy: "Policy",
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

    def finish(config: Config, env: Env) -> Env:
        for spectator in spectators:
            env = spectator.wrap(env)
        return preprocess(config, env)

    first = policy.first_index(config)
    envs = []
    with ExitStack() as stack:
        for number in range(min(num_envs, len(seeds))):
            env = make(config, first + number, finish)
            stack.callback(close_env, env)
            set_attributes(env, policy.env_attributes)
            envs.append(Seen(env, spectators) if spectators else env)
        policy.check_plays(envs[0])
        options = {"state_size": policy.actor.state_size, "max_steps": max_steps}
        return evaluate(act, envs, seeds, **options, on_progress=on_progress)


@dataclass(eq=False)
class Game:
    """An environment, and the episode that is played in it. state_size: of recurrent states."""

    env: Env
    state_size: int
    episode: int
    seed: int

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin the episode."""
        self.observation, self.info = self.env.reset(seed=self.seed)
        self.state = np.zeros(self.state_size, np.float32)

    def step(self, action: Any, state: ndarray) -> tuple[float, bool]:
        """Take a step to the next state; return the reward, and whether the episode is over."""
        self.state = state
        self.observation, reward, terminated, truncated, self.info = self.env.step(action)
        return float(reward), terminated or truncated


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
    waiting = iter(enumerate(seeds))  # an environment that is free takes the next episode
    returns = [0.0] * len(seeds)
    lengths = [0] * len(seeds)
    reported: dict[str, list[float]] = {}
    num_played = num_unfinished = 0
    games = [Game(env, state_size, *next(waiting)) for env in envs[: len(seeds)]]
    while games:
        observations = np.stack([game.observation for game in games])
        states = np.stack([game.state for game in games])
        actions = act(observations, [game.info for game in games], states)
        for game, action, state in zip([*games], actions, states, strict=True):
            reward, is_over = game.step(action, state)
            episode, info = game.episode, game.info
            returns[episode] += reward
            lengths[episode] += 1
            is_whole = WHOLE_EPISODE in info
            if is_whole or lengths[episode] >= max_steps:
                if is_whole:
                    returns[episode], lengths[episode] = info[WHOLE_EPISODE]
                for name, value in episode_metrics(info).items():
                    reported.setdefault(name, []).append(value)
                num_played += 1
                num_unfinished += not is_whole
                following = next(waiting, None)
                if following is None:
                    games.remove(game)
                    continue
                game.episode, game.seed = following
                is_over = True
            if is_over:  # also where a life was lost and the game continues
                game.begin()
        on_progress(num_played)
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
