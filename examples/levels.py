"""Draw the levels of an environment by how much is learned there (prioritized level replay).

python examples/levels.py [STEPS [SEEDS]], or
python main.py --env_name=examples/levels.py:Doors --levels=level:1-30
"""

import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ppo import load_policy, train

HARDEST = 30


class Doors(gymnasium.Env):
    """Go through as many doors as the level says; behind the last one is the only reward.

    At each door one of four keys is right, always the same one, and a wrong key ends the episode.
    By chance, one episode of level 5 in a thousand is won; who knows the way through four doors
    wins one in four."""

    observation_space = spaces.Dict(
        {"door": spaces.Discrete(HARDEST), "level": spaces.Box(0, 1, (1,))}
    )
    action_space = spaces.Discrete(4)
    keys = np.random.default_rng(0).integers(4, size=HARDEST)

    def __init__(self, level: int = HARDEST) -> None:
        self.level = level

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self.door = 0
        return self._see(), {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        is_right = action == self.keys[self.door]
        is_last = self.door + 1 == self.level
        self.door = min(self.door + 1, HARDEST - 1)
        is_won = bool(is_right and is_last)
        return self._see(), float(is_won), not is_right or is_last, False, {"is_success": is_won}

    def _see(self) -> dict[str, Any]:
        return {"door": self.door, "level": np.array([self.level / HARDEST], np.float32)}


def main(total_steps: int = 40_000, seeds: int = 1) -> None:
    """Print which levels are won after training by each way to choose them."""
    levels = f"level:1-{HARDEST}"
    ways: dict[str, dict[str, Any]] = {
        "the hardest only": {},
        "all alike": {"levels": levels, "level_scores": "uniform"},
        "by advantages": {"levels": levels},
        "by returns": {"levels": levels, "level_scores": "return"},
    }
    for way, flags in ways.items():
        won = []
        for seed in range(seeds):
            summary = train(
                Doors,
                **flags,
                seed=seed,
                total_steps=total_steps,
                num_envs=16,
                num_steps=32,
                num_workers=0,
                entropy_coef=0.01,
                eval_episodes=0,
                verbose=0,
                report=False,
            )
            policy = load_policy(summary.checkpoint, Doors)
            won.append(0)
            for level in range(1, HARDEST + 1):
                policy.env_attributes["level"] = level
                won[-1] += policy.evaluate(1).env["success_rate"] == 1
        print(f"{way}: {', '.join(map(str, won))} of {HARDEST} levels are won")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
