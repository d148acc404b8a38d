"""Learn a hard environment by a curriculum that prefers the levels on which most is learned.

python main.py examples.levels:Doors --callback=examples.levels:Curriculum --num_steps=64 \
    --learning_rate=1e-3 --entropy_coef=0.03 --total_steps=100000
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ppo import Callback
from ppo.envs.episodes import Episode
from ppo.run import Run

HARDEST = 30


class Doors(gymnasium.Env):
    """Go through as many doors as the level says; behind the last one is the only reward.

    At each door one of four keys is right, always the same one, and a wrong key ends the episode.
    A random policy wins one episode of level 5 in a thousand. shares: of episodes on each level."""

    observation_space = spaces.Discrete(HARDEST)  # the number of the door
    action_space = spaces.Discrete(4)
    keys = np.random.default_rng(0).integers(4, size=HARDEST)
    shares: Sequence[float] = (0.0,) * (HARDEST - 1) + (1.0,)  # the hardest level only

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.level = 1 + int(self.np_random.choice(HARDEST, p=self.shares))
        self.door = 0
        return self.door, {}

    def step(self, action: int) -> Any:
        is_right = bool(action == self.keys[self.door])
        is_last = self.door + 1 == self.level
        self.door = min(self.door + 1, HARDEST - 1)
        is_won = is_right and is_last
        info = {"is_success": is_won, "level": self.level}
        return self.door, float(is_won), not is_right or is_last, False, info


class Curriculum(Callback):
    """Draw levels in proportion to p (1 - p), where p is the share of recent episodes that are won:
    little is learned on levels that are always won or always lost (Tzannetos et al. 2023,
    "Proximal Curriculum"). uniform: share of episodes whose level is drawn uniformly."""

    def __init__(self, uniform: float = 0.2) -> None:
        self.uniform = uniform
        self.wins: dict[int, deque[float]] = defaultdict(lambda: deque(maxlen=20))

    def on_start(self, run: Run) -> None:
        self.set_shares(run)

    def on_episode(self, run: Run, episode: Episode) -> None:
        self.wins[int(episode.metrics["level"])].append(episode.metrics["success_rate"])

    def on_iteration(self, run: Run) -> None:
        self.set_shares(run)
        run.log("levels_won", sum(p > 0.9 for p in self.rates()))

    def rates(self) -> list[float]:
        found = [self.wins.get(level) for level in range(1, HARDEST + 1)]
        return [float(np.mean(wins)) if wins else 0.0 for wins in found]

    def set_shares(self, run: Run) -> None:
        scores = np.array([p * (1 - p) + 1e-6 for p in self.rates()])
        shares = (1 - self.uniform) * scores / scores.sum() + self.uniform / HARDEST
        run.set_env(shares=shares.tolist())

    def state_dict(self) -> dict[str, Any]:
        return {"wins": [[level, [*wins]] for level, wins in self.wins.items()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for level, wins in state["wins"]:
            self.wins[level].extend(wins)
