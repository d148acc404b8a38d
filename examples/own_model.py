"""A model of your own: actor and critic with layer norm, for observations that are vectors.

python main.py --env_name=CartPole-v1 --model=examples.own_model:NormalizedActorCritic
"""

from typing import Any

from torch import Tensor, nn

from ppo.models.actor_critic import ActorCritic
from ppo.models.distributions import Distribution, policy_head


class NormalizedActorCritic(ActorCritic):
    """An actor and a critic that share nothing.

    A model needs policy_head, which knows the action space, and forward, which returns a
    distribution and values. config holds every flag, such as hidden_size.
    """

    def __init__(self, observation_space: Any, action_space: Any, config: Any) -> None:
        super().__init__()
        size = config.hidden_size

        def layers() -> nn.Sequential:
            first = nn.Linear(observation_space.shape[0], size)
            return nn.Sequential(
                first, nn.LayerNorm(size), nn.Tanh(), nn.Linear(size, size), nn.Tanh()
            )

        self.actor = layers()
        self.critic = nn.Sequential(layers(), nn.Linear(size, 1))
        self.policy_head = policy_head(size, action_space, config)

    def forward(self, observations: Tensor) -> tuple[Distribution, Tensor]:
        """Return the distribution of actions, and values (B,), for observations (B, n)."""
        observations = observations.float()  # as they are already if they are normalised
        return self.policy_head(self.actor(observations)), self.critic(observations).squeeze(-1)
