"""Playing with a policy that does not learn."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import Env

Act = Callable[..., Sequence[Any]]


def evaluate(
    act: Act, envs: Sequence[Env], seeds: Sequence[int], episode_key: str, state_size: int
) -> dict[str, Any]:
    """Play a whole episode for each seed. Returns how many, their undiscounted, raw returns, the mean and deviation of
    those, and their lengths. act: from observations (n, *observation), n infos and states (n, S), which it overwrites
    by the next ones, to n actions. The environments play side by side, each taking the next seed; episode_key: under
    which name the info of a whole episode's last step has its return and length."""
    episodes: list[Any] = [None] * len(seeds)
    waiting = list(reversed(range(len(seeds))))

    def begin(env: Env, episode: int) -> tuple:
        return (env, episode, *env.reset(seed=seeds[episode]), np.zeros(state_size, np.float32))

    playing = [begin(env, waiting.pop()) for env in envs[: len(seeds)]]
    while playing:
        _, _, observations, infos, last_states = zip(*playing, strict=True)
        states = np.stack(last_states)
        actions = act(np.stack(observations), infos, states)
        players, playing = playing, []
        for (env, episode, *_), action, state in zip(players, actions, states, strict=True):
            observation, _, terminated, truncated, info = env.step(action)
            if not (terminated or truncated):
                playing.append((env, episode, observation, info, state))
            elif episode_key not in info:
                playing.append(begin(env, episode))
            else:
                episodes[episode] = info[episode_key]
                playing += [begin(env, waiting.pop())] if waiting else []
    returns, lengths = ([episode[i] for episode in episodes] for i in range(2))
    mean, std = (float(np.mean(returns)), float(np.std(returns))) if returns else (None, None)
    return {
        "episodes": len(returns),
        "mean": mean,
        "std": std,
        "returns": returns,
        "lengths": lengths,
    }
