"""Record episodes of a scripted expert, for examples/imitation.py.

python examples/record.py expert.npz
"""

import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np


def expert(observation: np.ndarray) -> int:
    """Push the cart to the side to which the pole is falling."""
    _, _, angle, velocity = observation
    return int(angle + 0.3 * velocity > 0)


def record(env: gymnasium.Env, act: Callable[[Any], Any], episodes: int, path: str) -> None:
    """Play whole episodes, and write them to an .npz file."""
    names = ("observations", "actions", "terminations", "truncations")
    tables: dict[str, list[Any]] = {name: [] for name in names}
    for seed in range(episodes):
        observation, _ = env.reset(seed=seed)
        tables["observations"].append(observation)
        terminated = truncated = False
        while not (terminated or truncated):
            action = act(observation)
            observation, _, terminated, truncated, _ = env.step(action)
            row = (observation, action, terminated, truncated)
            for name, value in zip(names, row, strict=True):
                tables[name].append(value)
    np.savez(path, **{name: np.array(table) for name, table in tables.items()})


if __name__ == "__main__":
    record(gymnasium.make("CartPole-v1"), expert, 10, sys.argv[1])
