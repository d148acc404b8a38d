"""Playing with a policy that does not learn."""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np


def evaluate(
    act: Callable[[np.ndarray], Sequence[Any]], envs: Sequence[gymnasium.Env], seeds: Sequence[int]
) -> dict[str, Any]:
    """Play an episode for each seed. Returns the number, mean and std of their undiscounted, raw returns. act: from
    observations (n, *observation) to n actions. The environments play side by side, each taking the next seed."""
    returns = [0.0] * len(seeds)
    waiting = list(reversed(range(len(seeds))))
    playing = [(env, waiting.pop()) for env in envs[: len(seeds)]]
    observations = [env.reset(seed=seeds[episode])[0] for env, episode in playing]
    while playing:
        actions = act(np.stack(observations))
        players, playing, observations = playing, [], []
        for (env, episode), action in zip(players, actions, strict=True):
            observation, reward, terminated, truncated, _ = env.step(action)
            returns[episode] += float(reward)
            if terminated or truncated:
                if not waiting:
                    continue
                episode = waiting.pop()
                observation = env.reset(seed=seeds[episode])[0]
            playing.append((env, episode))
            observations.append(observation)
    mean, std = (float(np.mean(returns)), float(np.std(returns))) if returns else (None, None)
    return {"episodes": len(returns), "mean": mean, "std": std}
