"""Multi-layer perceptrons for numbers."""

import math
from itertools import pairwise
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from ppo.envs.make import Spaces
from ppo.envs.observations import NUMBERS
from ppo.models.actor_critic import Trunk
from ppo.models.distributions import orthogonal


class VectorTrunk(Trunk):
    """An MLP without output layer, on flattened numbers (B, *shape). hidden_size: as the flag."""

    def __init__(self, spaces: Spaces, hidden_size: int | str) -> None:
        super().__init__()
        sizes: Any = [hidden_size] * spaces.config.num_layers
        if isinstance(hidden_size, str):
            sizes = [int(units) for units in hidden_size.split(",")]
        self.num_features = sizes[-1]
        self.activation = spaces.config.activation
        self.activate = getattr(functional, self.activation)
        widths = pairwise([math.prod(spaces.layout.tables[NUMBERS].shape), *sizes])
        self.layers: Any = nn.ModuleList(orthogonal(nn.Linear(*width)) for width in widths)

    def forward(self, observations: Tensor) -> Tensor:
        features = observations.flatten(1).float()
        for layer in self.layers:  # calling the layers would take twice as long
            features = self.activate(functional.linear(features, layer.weight, layer.bias))
        return features
