"""What actor-critics have in common."""

from typing import Any

from gymnasium import spaces
from torch import Tensor, nn

from models.distributions import CategoricalHead, DiagonalGaussianHead, Distribution, orthogonal


class ActorCritic(nn.Module):
    """Policy and value, each linear in the features that a trunk makes of observations: one trunk each, or one that
    they share. Orthogonal initial weights of gain sqrt(2), but 0.01 for the policy's head and 1 for the value's; zero
    bias (Baselines)."""

    def __init__(self, policy_trunk: Any, value_trunk: Any, num_features: int, action_space: Any) -> None:
        super().__init__()
        self.policy_trunk, self.value_trunk = policy_trunk, value_trunk
        head = CategoricalHead if isinstance(action_space, spaces.Discrete) else DiagonalGaussianHead
        self.policy_head = head(num_features, action_space)
        self.value_head = orthogonal(nn.Linear(num_features, 1), gain=1.0)
        # What an actor records of each step, so that its learner need not compute it again.
        self.num_shared_features = num_features if policy_trunk is value_trunk else 0

    def forward(self, observations: Tensor) -> tuple[Distribution, Tensor]:
        """observations: (B, *observation). Returns the distribution of actions, and values (B,)."""
        features = self.features(self.policy_trunk, observations)
        shared = self.num_shared_features > 0
        return self.heads(features, features if shared else self.features(self.value_trunk, observations))

    def heads(self, policy_features: Tensor, value_features: Tensor) -> tuple[Distribution, Tensor]:
        """features: (B, F) each. Returns the distribution of actions, and values (B,)."""
        return self.policy_head(policy_features), self.value_head(value_features).squeeze(-1)

    def prepare_to_act(self) -> None:
        """Make what is to act only, by weights that are copied in, as fast as it can be."""
        self.requires_grad_(False)

    def features(self, trunk: Any, observations: Tensor) -> Tensor:
        """Features (B, F) float32 of observations (B, *observation)."""
        raise NotImplementedError
