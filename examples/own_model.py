"""Define a network: actor and critic with layer normalization, for vectors as observations.

python main.py CartPole-v1 --model=examples.own_model:NormalizedActorCritic
"""

from typing import Any

from torch import Tensor, nn

from ppo import Config
from ppo.models.actor_critic import ActorCritic, Outputs
from ppo.models.distributions import policy_head


class NormalizedActorCritic(ActorCritic):
    """An actor and a critic that share nothing.

    A model needs policy_head, which fits the action space, and forward. config has every flag,
    such as hidden_size."""

    def __init__(self, observation_space: Any, action_space: Any, config: Config) -> None:
        super().__init__()
        size = int(config.hidden_size)

        def layers() -> nn.Sequential:
            first = nn.Linear(observation_space.shape[0], size)
            second = nn.Linear(size, size)
            return nn.Sequential(first, nn.LayerNorm(size), nn.Tanh(), second, nn.Tanh())

        self.actor = layers()
        self.critic = nn.Sequential(layers(), nn.Linear(size, 1))
        self.policy_head = policy_head(size, action_space, config)

    def forward(self, observations: Tensor) -> Outputs:
        """Return the distribution of actions, and values (B,), for observations (B, n)."""
        observations = observations.float()  # float64 with --normalize_observations=False
        return self.policy_head(self.actor(observations)), self.critic(observations).squeeze(-1)
