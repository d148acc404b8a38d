"""A model of benchmarks.digests, which any commit of the trainer can run."""

from typing import Any

from torch import Tensor, nn
from torch.distributions import Beta, Independent

from ppo.models.actor_critic import ActorCritic
from ppo.models.distributions import TorchHead


class BetaActorCritic(ActorCritic):
    """Draw actions in (0, 1) from a distribution of torch."""

    def __init__(self, observation_space: Any, action_space: Any, config: Any) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(observation_space.shape[0], 32), nn.Tanh())
        self.outputs = nn.Linear(32, 2 * action_space.shape[0] + 1)
        self.policy_head = TorchHead(action_space, config)

    def forward(self, observations: Tensor) -> tuple[Any, Tensor]:
        outputs = self.outputs(self.features(observations.float()))
        alpha, beta = (1 + nn.functional.softplus(outputs[:, 1:])).chunk(2, 1)
        return self.policy_head(Independent(Beta(alpha, beta), 1)), outputs[:, 0]
