"""Read any number of entities in any order, here food and poison, by a network for sets.

python main.py examples.entities:Forage --model=examples.entities:SetActorCritic \
    --normalize_observations=False
"""

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from ppo import Config
from ppo.errors import ConfigError
from ppo.models.actor_critic import ActorCritic, Outputs
from ppo.models.distributions import policy_head

MAX_ENTITIES = 12
REACH, STEP = 0.12, 0.1


class Forage(gymnasium.Env):
    """Move to food and around poison on a square. A row of an observation is an entity: its
    position as seen from the agent, 1 for food or -1 for poison, and 1; unused rows are 0. All
    food together is a reward of 1, and a piece of poison costs as much as one of food gives."""

    observation_space = spaces.Box(-2, 2, (MAX_ENTITIES, 4))
    action_space = spaces.Box(-1, 1, (2,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        self.position = np.zeros(2)
        count = int(self.np_random.integers(2, MAX_ENTITIES + 1))
        self.places = self.np_random.uniform(-1, 1, (count, 2))
        self.kinds = np.where(np.arange(count) % 2, -1.0, 1.0)
        self.num_food = (self.kinds > 0).sum()
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.position = np.clip(self.position + STEP * action, -1, 1)
        is_eaten = np.linalg.norm(self.places - self.position, axis=1) < REACH
        reward = float(self.kinds[is_eaten].sum() / self.num_food)
        self.places, self.kinds = self.places[~is_eaten], self.kinds[~is_eaten]
        is_done = not (self.kinds > 0).any()
        return self._observe(), reward, is_done, self.steps == 60, {"is_success": is_done}

    def _observe(self) -> Any:
        rows = np.zeros((MAX_ENTITIES, 4), np.float32)
        order = self.np_random.permutation(len(self.kinds))
        rows[: len(order), :2] = (self.places - self.position)[order]
        rows[: len(order), 2] = self.kinds[order]
        rows[: len(order), 3] = 1
        return rows


class SetActorCritic(ActorCritic):
    """The same layers for each entity, then the maximum over all entities, so that their order does
    not matter (Qi et al. 2017, "PointNet")."""

    def __init__(self, observation_space: Any, action_space: Any, config: Config) -> None:
        super().__init__()
        if config.normalize_observations or len(observation_space.shape) != 2:
            raise ConfigError(
                "SetActorCritic reads sets (N, K) whose last column is 1 where a row is used: give "
                "--normalize_observations=False, which leaves it so"
            )
        size = int(config.hidden_size)
        num_columns = observation_space.shape[1]

        def layers() -> nn.Sequential:
            first = nn.Linear(num_columns, size)
            return nn.Sequential(first, nn.ReLU(), nn.Linear(size, size), nn.ReLU())

        self.policy, self.value = layers(), layers()
        self.policy_last = nn.Sequential(nn.Linear(size, size), nn.ReLU())
        self.value_last = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, 1))
        self.policy_head = policy_head(size, action_space, config)

    def forward(self, observations: Tensor) -> Outputs:
        exists = observations[..., -1:]

        def pooled(layers: nn.Module) -> Tensor:
            return torch.amax(layers(observations) * exists, 1)  # ReLU: at least 0

        distribution = self.policy_head(self.policy_last(pooled(self.policy)))
        return distribution, self.value_last(pooled(self.value)).squeeze(-1)
