"""A network of your own: the value network is wider than the policy's."""

from typing import Any

from torch import Tensor, nn

from ppo import Config
from ppo.models.actor_critic import ActorCritic, Outputs
from ppo.models.distributions import policy_head


class WideCritic(ActorCritic):
    """Two layers of 64 units for the policy, and of 256 for the value."""

    def __init__(self, observation_space: Any, action_space: Any, config: Config) -> None:
        super().__init__()

        def layers(size: int) -> nn.Sequential:
            first = nn.Linear(observation_space.shape[0], size)
            return nn.Sequential(first, nn.Tanh(), nn.Linear(size, size), nn.Tanh())

        self.policy = layers(64)
        self.value = nn.Sequential(layers(256), nn.Linear(256, 1))
        self.policy_head = policy_head(64, action_space, config)

    def forward(self, observations: Tensor) -> Outputs:
        """Return the distribution of actions, and values (B,), for observations (B, 12)."""
        return self.policy_head(self.policy(observations)), self.value(observations).squeeze(-1)
