"""Distributions of actions, and the policy heads that produce them.

Noise is drawn in advance for a whole rollout, so that actions depend on the random stream of their
environment only. Actions are (..., D), a column for each number of the flattened action space."""

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from numpy import ndarray
from torch import Tensor, nn

from ppo.config import Config
from ppo.envs.spaces import num_choices
from ppo.models.numpy_mlp import HALF_LOG_TWO_PI, MASKED_LOGIT, draw_gumbel, draw_normal


@dataclass
class Categorical:
    """D independent choices among K each. logits: (..., D, K); mask, noise: (..., D * K); noise is
    standard Gumbel (Maddison et al. 2014, "A* Sampling", section 2)."""

    logits: Tensor

    def masked(self, mask: Tensor) -> "Categorical":
        return Categorical(self.logits.masked_fill(~mask.view_as(self.logits), MASKED_LOGIT))

    @cached_property
    def log_probs(self) -> Tensor:
        return self.logits.log_softmax(-1)

    def sample(self, noise: Tensor) -> Tensor:
        return (self.logits + noise.view_as(self.logits)).argmax(-1)

    def mode(self) -> Tensor:
        return self.logits.argmax(-1)

    def log_prob(self, actions: Tensor) -> Tensor:
        index = actions.long().unsqueeze(-1)
        return self.log_probs.gather(-1, index).squeeze(-1).sum(-1)

    def entropy(self) -> Tensor:
        return -(self.log_probs.exp() * self.log_probs).sum((-2, -1))


@dataclass
class DiagonalGaussian:
    """D independent normals. mean, standard normal noise: (..., D); log_std: (D,) or (..., D)."""

    mean: Tensor
    log_std: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        return self.mean + self.log_std.exp() * noise

    def mode(self) -> Tensor:
        return self.mean

    def log_prob(self, actions: Tensor) -> Tensor:
        standardized = (actions - self.mean) * (-self.log_std).exp()
        return (-0.5 * standardized.square() - self.log_std - HALF_LOG_TWO_PI).sum(-1)

    def entropy(self) -> Tensor:
        return (self.log_std + (0.5 + HALF_LOG_TWO_PI)).sum(-1).expand(self.mean.shape[:-1])


class StateDependentGaussian(DiagonalGaussian):
    """A Gaussian whose noise is a random linear function of features (..., F) (Raffin et al. 2021,
    eqs. 7 and 8). log_std: (F, D), of the function's weights; noise: (..., F * D)."""

    def __init__(self, mean: Tensor, log_std: Tensor, features: Tensor) -> None:
        self.std = log_std.exp()
        self.features = features
        variance = features.square() @ self.std.square() + 1e-6
        super().__init__(mean, 0.5 * variance.log())

    def sample(self, noise: Tensor) -> Tensor:
        exploration = noise.view(*noise.shape[:-1], *self.std.shape) * self.std
        return self.mean + (self.features.unsqueeze(-2) @ exploration).squeeze(-2)


# sample(noise) and mode() return actions (..., D); log_prob(actions) and entropy() return sums
# (...); masked(mask), of discrete actions, restricts choices to those that (..., M) bool allows.
Distribution = Any


class CategoricalHead(nn.Module):
    """Map features to a Categorical. sizes: (D,), of each choice, padded to the largest; is_plain:
    whether ppo.models.numpy_mlp computes the same."""

    columns: Tensor

    def __init__(self, num_features: int, sizes: ndarray) -> None:
        super().__init__()
        exists = np.arange(sizes.max()) < sizes[:, None]
        self.shape = exists.shape
        self.draw_noise = partial(draw_gumbel, size=exists.size)
        self.is_plain = bool(exists.all())
        self.logits = orthogonal(nn.Linear(num_features, int(sizes.sum())), 0.01)
        columns = np.where(exists.ravel(), np.cumsum(exists) - 1, -1)  # -1: padding after the last
        self.register_buffer("columns", torch.from_numpy(columns), persistent=False)

    def forward(self, features: Tensor) -> Categorical:
        logits = self.logits(features)
        if not self.is_plain:
            logits = nn.functional.pad(logits, (0, 1), value=MASKED_LOGIT)[..., self.columns]
        return Categorical(logits.view(*logits.shape[:-1], *self.shape))


class GaussianHead(nn.Module):
    """Map features to D normals, whose log_std depends on the features with --use_sde only."""

    def __init__(self, num_features: int, num_actions: int, config: Config) -> None:
        super().__init__()
        self.is_plain = not config.use_sde
        self.mean = orthogonal(nn.Linear(num_features, num_actions), 0.01)
        shape = [num_features, num_actions] if config.use_sde else [num_actions]
        self.log_std = nn.Parameter(torch.full(shape, float(config.log_std_init)))
        hold = config.sde_sample_freq if config.use_sde else 1
        self.draw_noise = partial(draw_normal, size=self.log_std.numel(), hold=hold)

    def forward(self, features: Tensor) -> Distribution:
        mean = self.mean(features)
        if self.is_plain:
            return DiagonalGaussian(mean, self.log_std)
        return StateDependentGaussian(mean, self.log_std, features.detach())


def policy_head(num_features: int, space: Any, config: Config) -> nn.Module:
    """Make the head for F features and an action space."""
    if isinstance(space, Box):
        return GaussianHead(num_features, math.prod(space.shape), config)
    return CategoricalHead(num_features, num_choices(space))


def orthogonal(layer: Any, gain: float = math.sqrt(2)) -> Any:
    """Initialize a layer in place: orthogonal weights (Saxe et al. 2013), zero bias; return it."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer
