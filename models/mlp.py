"""Actor-critic on vectors."""

import math
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from models.actor_critic import ActorCritic
from models.distributions import orthogonal


class MLP(ActorCritic):
    """Two hidden layers of tanh units each for policy and value, or two that they share."""

    def __init__(self, observation_space: spaces.Box, action_space: Any, hidden_size: int, share_trunk: bool) -> None:
        sizes = ((math.prod(observation_space.shape), hidden_size), (hidden_size, hidden_size))
        policy_trunk, value_trunk = (
            nn.ModuleList(orthogonal(nn.Linear(*size), math.sqrt(2)) for size in sizes) for _ in range(2)
        )
        super().__init__(policy_trunk, policy_trunk if share_trunk else value_trunk, hidden_size, action_space)

    def features(self, trunk: Any, observations: Tensor) -> Tensor:
        inputs = observations.flatten(1).float()
        for layer in trunk:
            inputs = torch.tanh(functional.linear(inputs, layer.weight, layer.bias))  # half the cost of calling layers
        return inputs
