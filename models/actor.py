"""The policy as workers use it, and the vectors that hold a model's parameters."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from models.mlp import MLP, Distribution


class Actor:
    """Acts by a model whose weights lie in an array (P,), which another process may change between calls."""

    def __init__(self, model: MLP, weights: np.ndarray) -> None:
        self.policy: Callable[[Tensor], Distribution] = model.policy
        self.draw_noise: Callable[[np.random.Generator, int], np.ndarray] = model.policy_head.draw_noise
        bind_parameters(model.requires_grad_(False), torch.from_numpy(weights))

    def __call__(self, observations: np.ndarray, noise: np.ndarray | None) -> np.ndarray:
        """observations: (n, *observation); noise: (n, *noise), or None for the most likely actions.
        Returns actions: (n, *action)."""
        distribution = self.policy(torch.from_numpy(observations))
        actions = distribution.mode() if noise is None else distribution.sample(torch.from_numpy(noise))
        return actions.numpy()


def flatten_parameters(model: nn.Module) -> tuple[Tensor, Tensor]:
    """Move parameters and gradients into two vectors (P,), so that to publish, clip or step is one operation."""
    weights = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
    gradients = torch.zeros_like(weights)
    bind_parameters(model, weights, gradients)
    return weights, gradients


def bind_parameters(model: nn.Module, weights: Tensor, gradients: Tensor | None = None) -> None:
    """Make the model's parameters, and their gradients if given, views into vectors (P,)."""
    start = 0
    for parameter in model.parameters():
        part = slice(start, start := start + parameter.numel())
        parameter.data = weights[part].view_as(parameter)
        if gradients is not None:
            parameter.grad = gradients[part].view_as(parameter)
