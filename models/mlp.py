"""The trunk for vectors."""

import math
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from ppo.models.actor_critic import Trunk
from ppo.models.distributions import orthogonal


class VectorTrunk(Trunk):
    """Hidden layers of equal size, on observations of any shape, which are flattened.

    It always computes in float32.
    """

    def __init__(self, observation_space: Any, config: Any, size: int) -> None:
        super().__init__()
        self.num_features = size
        self.activation = config.activation
        self.activate = getattr(functional, config.activation)
        input_sizes = [math.prod(observation_space.shape)] + [size] * (config.num_layers - 1)
        self.layers: Any = nn.ModuleList(
            orthogonal(nn.Linear(input_size, size), math.sqrt(2)) for input_size in input_sizes
        )

    def forward(self, observations: Tensor) -> Tensor:
        features = observations.flatten(1).float()
        for layer in self.layers:  # calling the layers would take twice as long
            features = self.activate(functional.linear(features, layer.weight, layer.bias))
        return features
