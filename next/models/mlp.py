"""Multi-layer perceptrons for numbers."""

import math
from itertools import pairwise
from typing import Any

from gymnasium.spaces import Box
from torch import Tensor, nn
from torch.nn import functional

from ppo.models.actor_critic import Trunk
from ppo.models.distributions import orthogonal


def layer_sizes(hidden_size: int | str, num_layers: int) -> list[int]:
    """Return the units of each hidden layer: num_layers of hidden_size, or those of a text such as
    "256,128"."""
    if isinstance(hidden_size, str):
        return [int(units) for units in hidden_size.split(",")]
    return [hidden_size] * num_layers


class VectorTrunk(Trunk):
    """An MLP without output layer, on flattened numbers."""

    def __init__(self, space: Box, activation: str, sizes: list[int]) -> None:
        super().__init__()
        self.num_features = sizes[-1]
        self.activation = activation
        self.activate = getattr(functional, activation)
        widths = pairwise([math.prod(space.shape), *sizes])
        self.layers: Any = nn.ModuleList(
            orthogonal(nn.Linear(*width), math.sqrt(2)) for width in widths
        )

    def forward(self, observations: Tensor) -> Tensor:
        features = observations.flatten(1).float()
        for layer in self.layers:  # calling the layers would take twice as long
            features = self.activate(functional.linear(features, layer.weight, layer.bias))
        return features
