"""Actor-critic on vectors."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from models.distributions import Categorical, CategoricalHead, DiagonalGaussian, DiagonalGaussianHead, orthogonal

Distribution = Categorical | DiagonalGaussian


class MLP(nn.Module):
    """Two hidden layers of tanh units each for policy and value, or two that they share. Orthogonal initial weights
    of gain sqrt(2), but 0.01 for the policy's last layer and 1 for the value's; zero bias (Baselines)."""

    def __init__(self, observation_space: spaces.Box, action_space: Any, hidden_size: int, share_trunk: bool) -> None:
        super().__init__()
        sizes = ((math.prod(observation_space.shape), hidden_size), (hidden_size, hidden_size))
        self.policy_trunk, self.value_trunk = (
            nn.ModuleList(orthogonal(nn.Linear(*size), math.sqrt(2)) for size in sizes) for _ in range(2)
        )
        if share_trunk:
            self.value_trunk = self.policy_trunk
        head = CategoricalHead if isinstance(action_space, spaces.Discrete) else DiagonalGaussianHead
        self.policy_head = head(hidden_size, action_space)
        self.value_head = orthogonal(nn.Linear(hidden_size, 1), gain=1.0)

    def forward(self, observations: Tensor) -> tuple[Distribution, Tensor]:
        """observations: (B, *observation). Returns the distribution of actions, and values (B,)."""
        inputs = observations.flatten(1).float()
        features = _tanh_layers(self.policy_trunk, inputs)
        value_features = features if self.value_trunk is self.policy_trunk else _tanh_layers(self.value_trunk, inputs)
        return self.policy_head(features), self.value_head(value_features).squeeze(-1)

    def policy(self, observations: Tensor) -> Distribution:
        """The distribution alone, for acting."""
        return self.policy_head(_tanh_layers(self.policy_trunk, observations.flatten(1).float()))


def _tanh_layers(layers: Iterable[Any], inputs: Tensor) -> Tensor:
    for layer in layers:
        inputs = torch.tanh(functional.linear(inputs, layer.weight, layer.bias))  # half the cost of calling layers
    return inputs
