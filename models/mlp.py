"""Trunks for vectors."""

import math
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from ppo.models.actor_critic import Trunk
from ppo.models.distributions import orthogonal


class VectorTrunk(Trunk):
    """Hidden layers of units of one kind on observations of any shape, flattened."""

    def __init__(self, shape: tuple[int, ...], size: int, config: Any) -> None:
        super().__init__()
        self.num_features = size
        self.activation: Any = getattr(functional, config.activation)
        self.hidden_layers_only = config.activation
        inputs = [math.prod(shape), *[size] * (config.num_layers - 1)]
        self.layers: Any = nn.ModuleList(
            orthogonal(nn.Linear(width, size), math.sqrt(2)) for width in inputs
        )

    def forward(self, observations: Tensor) -> Tensor:
        features = observations.flatten(1).float()
        for layer in self.layers:  # half the cost of calling layers
            features = self.activation(functional.linear(features, layer.weight, layer.bias))
        return features
