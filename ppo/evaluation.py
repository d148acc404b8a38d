"""Playing with a policy that does not learn."""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np


def evaluate(
    act: Callable[[np.ndarray], Sequence[Any]], envs: Sequence[gymnasium.Env], seeds: Sequence[int], episode_key: str
) -> dict[str, Any]:
    """Play a whole episode for each seed. Returns number, mean and std of their undiscounted, raw returns. act: from
    observations (n, *observation) to n actions. The environments play side by side, each taking the next seed;
    episode_key: under which name the info of a whole episode's last step has its return, first."""
    returns = [0.0] * len(seeds)
    waiting = list(reversed(range(len(seeds))))
    playing = [(env, waiting.pop()) for env in envs[: len(seeds)]]
    observations = [env.reset(seed=seeds[episode])[0] for env, episode in playing]
    while playing:
        actions = act(np.stack(observations))
        players, playing, observations = playing, [], []
        for (env, episode), action in zip(players, actions, strict=True):
            observation, _, terminated, truncated, info = env.step(action)
            if terminated or truncated:
                if episode_key in info:
                    returns[episode] = info[episode_key][0]
                    if not waiting:
                        continue
                    episode = waiting.pop()
                observation = env.reset(seed=seeds[episode])[0]
            playing.append((env, episode))
            observations.append(observation)
    mean, std = (float(np.mean(returns)), float(np.std(returns))) if returns else (None, None)
    return {"episodes": len(returns), "mean": mean, "std": std}
