"""The policy as workers use it."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from models.mlp import MLP, Distribution


class Actor:
    """Acts by a model whose weights lie in an array (P,), which another process may change between calls."""

    def __init__(self, model: MLP, weights: np.ndarray) -> None:
        self.policy: Callable[[Tensor], Distribution] = model.policy
        self.draw_noise: Callable[[np.random.Generator, int], np.ndarray] = model.policy_head.draw_noise
        vector_to_parameters(torch.from_numpy(weights), model.requires_grad_(False).parameters())  # views, not copies

    def __call__(self, observations: np.ndarray, noise: np.ndarray | None) -> np.ndarray:
        """observations: (n, *observation); noise: (n, *noise), or None for the most likely actions.
        Returns actions: (n, *action)."""
        distribution = self.policy(torch.from_numpy(observations))
        actions = distribution.mode() if noise is None else distribution.sample(torch.from_numpy(noise))
        return actions.numpy()
