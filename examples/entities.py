"""Food and poison, any number of each, in any order: --model=set reads them as a set.

python main.py --env_name=examples.entities:Forage --model=set
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

MAX_ENTITIES = 12
REACH = 0.12
STEP = 0.1


class Forage(gymnasium.Env):
    """Move to food and around poison on a square. An entity is its position as seen from the agent,
    and 1 for food or -1 for poison; all food together is a reward of 1, and a piece of poison costs
    as much as one of food gives."""

    observation_space = spaces.Dict(
        {
            "entities": spaces.Box(-2, 2, (MAX_ENTITIES, 3)),
            "mask": spaces.MultiBinary(MAX_ENTITIES),
            "position": spaces.Box(-1, 1, (2,)),
        }
    )
    action_space = spaces.Box(-1, 1, (2,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        self.position = np.zeros(2, np.float32)
        count = self.np_random.integers(2, MAX_ENTITIES + 1)
        self.places = self.np_random.uniform(-1, 1, (count, 2)).astype(np.float32)
        self.kinds = np.where(np.arange(count) % 2, -1, 1).astype(np.float32)
        self.num_food = int((self.kinds > 0).sum())
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        moved = self.position + STEP * np.clip(action, -1, 1)
        self.position = np.clip(moved, -1, 1).astype(np.float32)
        is_eaten = np.linalg.norm(self.places - self.position, axis=1) < REACH
        reward = float(self.kinds[is_eaten].sum()) / self.num_food
        self.places, self.kinds = self.places[~is_eaten], self.kinds[~is_eaten]
        has_food = bool((self.kinds > 0).any())
        return self._observe(), reward, not has_food, self.steps >= 60, {"is_success": not has_food}

    def _observe(self) -> Any:
        order = self.np_random.permutation(len(self.kinds))
        entities = np.zeros((MAX_ENTITIES, 3), np.float32)
        entities[: len(order), :2] = (self.places - self.position)[order]
        entities[: len(order), 2] = self.kinds[order]
        mask = (np.arange(MAX_ENTITIES) < len(order)).astype(np.int8)
        return {"entities": entities, "mask": mask, "position": self.position}
