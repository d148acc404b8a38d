"""Distributions over actions, and the layers that end in them. To sample, they take noise that was drawn for a whole
rollout: an action depends on its environment's own stream of random numbers only, whoever computes it."""

import math
from functools import cached_property
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class Categorical:
    """One of A choices. logits: (..., A); actions: (...) int64; noise: (..., A), standard Gumbel, to which logits are
    added and the greatest taken (Maddison et al. 2014, "A* Sampling", section 2)."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    @cached_property
    def log_probs(self) -> Tensor:
        return functional.log_softmax(self.logits, -1)

    def sample(self, noise: Tensor) -> Tensor:
        return (self.logits + noise).argmax(-1)

    def mode(self) -> Tensor:
        return self.logits.argmax(-1)

    def log_prob(self, actions: Tensor) -> Tensor:
        return self.log_probs.gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        return -(self.log_probs.exp() * self.log_probs).sum(-1)


class DiagonalGaussian:
    """D independent normals. mean: (..., D); log_std: (D,); actions: (..., D); noise: (..., D), standard normal."""

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean, self.log_std = mean, log_std

    def sample(self, noise: Tensor) -> Tensor:
        return self.mean + self.log_std.exp() * noise

    def mode(self) -> Tensor:
        return self.mean

    def log_prob(self, actions: Tensor) -> Tensor:
        standardized = (actions - self.mean) * (-self.log_std).exp()
        return (-0.5 * standardized.square() - self.log_std - HALF_LOG_TWO_PI).sum(-1)

    def entropy(self) -> Tensor:
        return (self.log_std + (0.5 + HALF_LOG_TWO_PI)).sum(-1).expand(self.mean.shape[:-1])


Distribution = Categorical | DiagonalGaussian


class CategoricalHead(nn.Module):
    """From features (..., F) to a distribution over a Discrete space."""

    def __init__(self, num_features: int, space: spaces.Discrete) -> None:
        super().__init__()
        self.logits = orthogonal(nn.Linear(num_features, int(space.n)), gain=0.01)

    def forward(self, features: Tensor) -> Categorical:
        return Categorical(self.logits(features))

    def draw_noise(self, generator: np.random.Generator, num_steps: int) -> np.ndarray:
        exponential = generator.standard_exponential((num_steps, self.logits.out_features), dtype=np.float32)
        return -np.log(np.maximum(exponential, np.finfo(np.float32).tiny))


class DiagonalGaussianHead(nn.Module):
    """From features (..., F) to a distribution over a Box, flattened; its deviation is the same for all features."""

    def __init__(self, num_features: int, space: spaces.Box) -> None:
        super().__init__()
        self.mean = orthogonal(nn.Linear(num_features, math.prod(space.shape)), gain=0.01)
        self.log_std = nn.Parameter(torch.zeros(self.mean.out_features))

    def forward(self, features: Tensor) -> DiagonalGaussian:
        return DiagonalGaussian(self.mean(features), self.log_std)

    def draw_noise(self, generator: np.random.Generator, num_steps: int) -> np.ndarray:
        return generator.standard_normal((num_steps, self.mean.out_features), dtype=np.float32)


def orthogonal(layer: Any, gain: float) -> Any:
    """Orthogonal weights (Saxe et al. 2013), zero bias."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer
