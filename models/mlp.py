"""The trunk for vectors."""

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gymnasium.spaces import Box
from torch import Tensor, nn
from torch.nn import functional

from ppo.models.actor_critic import Trunk
from ppo.models.distributions import orthogonal

if TYPE_CHECKING:
    from ppo.config.config import Config


def layer_sizes(size: int | str, num_layers: int) -> list[int]:
    """Return the units of each hidden layer.

    size: units of each of num_layers layers, or a string such as "256,128" for all of them."""
    if isinstance(size, str):
        return [int(units) for units in size.split(",")]
    return [size] * num_layers


class VectorTrunk(Trunk):
    """An MLP without output layer, on flattened observations. size: as layer_sizes takes it."""

    def __init__(self, observation_space: Box, config: "Config", size: int | str) -> None:
        super().__init__()
        sizes = layer_sizes(size, config.num_layers)
        self.num_features = sizes[-1]
        self.activation = config.activation
        self.activate = getattr(functional, config.activation)
        widths = pairwise([math.prod(observation_space.shape), *sizes])
        self.layers: Any = nn.ModuleList(
            orthogonal(nn.Linear(*width), math.sqrt(2)) for width in widths
        )

    def forward(self, observations: Tensor) -> Tensor:
        features = observations.flatten(1).float()
        for layer in self.layers:  # calling the layers would take twice as long
            features = self.activate(functional.linear(features, layer.weight, layer.bias))
        return features
