"""A network of one's own."""

from typing import Any

from torch import nn

from ppo.models.actor_critic import ActorCritic
from ppo.models.distributions import policy_head


class OwnNetwork(ActorCritic):
    """Policy and value on one hidden layer."""

    def __init__(self, observation_space: Any, action_space: Any, config: Any) -> None:
        super().__init__()
        size = config.hidden_size
        self.features = nn.Linear(observation_space.shape[0], size)
        self.critic = nn.Linear(size, 1)
        self.policy_head = policy_head(size, action_space, config)

    def forward(self, observations: Any) -> Any:
        features = self.features(observations.float()).tanh()
        return self.policy_head(features), self.critic(features)[:, 0]
