"""Distributions of actions, and the policy heads that produce them.

Sampling is a function of noise that is drawn in advance for a whole rollout, so that actions depend
only on their environment's random stream, and not on the process that computes them. Actions are
(..., D), with a column for each number of the flattened action space.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn
from torch.nn import functional

from ppo.errors import ConfigError
from ppo.models.noise import HALF_LOG_TWO_PI, MASKED_LOGIT, draw_gumbel, draw_held, draw_normal

if TYPE_CHECKING:
    from ppo.config import Config

Layer = TypeVar("Layer", bound=nn.Linear | nn.Conv2d)
# Trapezoidal rule for a standard normal, exact enough while the standard deviation is below 7.
NODES = np.linspace(-8, 8, 129)
WEIGHTS = np.exp(-(NODES**2) / 2)
WEIGHTS /= WEIGHTS.sum()


class Distribution:
    """Base class of distributions of actions (..., D).

    sample(noise) and mode() return actions; log_prob(actions) and entropy() return (...), sums over
    the D columns."""

    sample: Any
    mode: Any
    log_prob: Any
    entropy: Any

    def masked(self, mask: Tensor) -> "Distribution":
        """Return the distribution restricted to the choices that a mask (..., M) bool allows."""
        return self


@dataclass
class Categorical(Distribution):
    """D independent choices among K each.

    logits: (..., D, K); mask: (..., D * K); noise: (..., D * K), standard Gumbel: a sample is the
    argmax of logits + noise (Maddison et al. 2014, "A* Sampling", section 2).
    """

    logits: Tensor

    def masked(self, mask: Tensor) -> "Categorical":
        return Categorical(self.logits.masked_fill(~mask.view_as(self.logits), MASKED_LOGIT))

    @cached_property
    def log_probs(self) -> Tensor:
        """The log-probability of each choice, (..., D, K)."""
        return functional.log_softmax(self.logits, -1)

    def sample(self, noise: Tensor) -> Tensor:
        return (self.logits + noise.view_as(self.logits)).argmax(-1)

    def mode(self) -> Tensor:
        return self.logits.argmax(-1)

    def log_prob(self, actions: Tensor) -> Tensor:
        return self.log_probs.gather(-1, actions.long().unsqueeze(-1)).squeeze(-1).sum(-1)

    def entropy(self) -> Tensor:
        return -(self.log_probs.exp() * self.log_probs).sum((-2, -1))


@dataclass
class DiagonalGaussian(Distribution):
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
    """A Gaussian whose noise is a random linear function of features (..., F): generalized
    state-dependent exploration (Raffin et al. 2021, eqs. 7 and 8).

    log_std: (F, D), of the function's weights; noise: (..., F * D), of which the same values give
    the same function."""

    def __init__(self, mean: Tensor, log_std: Tensor, features: Tensor) -> None:
        self.std = log_std.exp()
        self.features = features
        super().__init__(mean, 0.5 * (features.square() @ self.std.square() + 1e-6).log())

    def sample(self, noise: Tensor) -> Tensor:
        exploration = noise.view(*noise.shape[:-1], *self.std.shape) * self.std
        return self.mean + (self.features.unsqueeze(-2) @ exploration).squeeze(-2)


class Squashed(Distribution):
    """The tanh of a Gaussian's samples.

    Actions are those before tanh; ppo.envs.spaces.action_converter applies tanh and the scale of
    the Box. Log-probabilities are those of tanh(actions) (Haarnoja et al. 2018, appendix C).
    """

    def __init__(self, gaussian: DiagonalGaussian) -> None:
        self.gaussian = gaussian
        self.sample = gaussian.sample
        self.mode = gaussian.mode

    def log_prob(self, actions: Tensor) -> Tensor:
        return self.gaussian.log_prob(actions) - _log_slope_of_tanh(actions).sum(-1)

    def entropy(self) -> Tensor:
        """Return the Gaussian's entropy plus E[log(1 - tanh^2)], by the trapezoidal rule."""
        mean = self.gaussian.mean
        deviations = self.gaussian.log_std.exp().unsqueeze(-1) * mean.new_tensor(NODES)
        slopes = _log_slope_of_tanh(mean.unsqueeze(-1) + deviations) @ mean.new_tensor(WEIGHTS)
        return self.gaussian.entropy() + slopes.sum(-1)


def _log_slope_of_tanh(x: Tensor) -> Tensor:
    """Compute log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2 x)), stable for large x."""
    return 2 * (math.log(2) - x - functional.softplus(-2 * x))


@dataclass
class Product(Distribution):
    """Independent distributions side by side. heads: those that made them, with their sizes."""

    parts: Sequence[Distribution]
    heads: Any

    def masked(self, mask: Tensor) -> "Product":
        split = self._split(mask, "mask_size")
        return Product([part.masked(columns) for part, columns in split], self.heads)

    def sample(self, noise: Tensor) -> Tensor:
        split = self._split(noise, "noise_size")
        return torch.cat([part.sample(columns) for part, columns in split], -1)

    def mode(self) -> Tensor:
        return torch.cat([part.mode() for part in self.parts], -1)

    def log_prob(self, actions: Tensor) -> Tensor:
        split = self._split(actions, "action_size")
        return torch.stack([part.log_prob(columns) for part, columns in split]).sum(0)

    def entropy(self) -> Tensor:
        return torch.stack([part.entropy() for part in self.parts]).sum(0)

    def _split(self, table: Tensor, size: str) -> Iterator[tuple[Distribution, Tensor]]:
        """Pair each part with its columns of a table. size: the heads' attribute to use."""
        widths = [getattr(head, size) for head in self.heads]
        return zip(self.parts, torch.split(table, widths, -1), strict=True)


class PolicyHead(nn.Module):
    """Base class of modules that map features (..., F) to a Distribution.

    action_size (D), noise_size and mask_size: numbers of columns; action_dtype: of actions.
    draw_noise(generator, num_steps) draws the noise (num_steps, noise_size) of one environment.
    """

    action_dtype: Any = np.int64
    draw_noise: Any

    def __init__(self) -> None:
        super().__init__()
        self.action_size = 0
        self.noise_size = 0
        self.mask_size = 0


class CategoricalHead(PolicyHead):
    """Map features to a Categorical. sizes: of each of D choices, padded to the largest."""

    columns: Tensor

    def __init__(self, num_features: int, sizes: Sequence[int]) -> None:
        super().__init__()
        exists = np.arange(max(sizes)) < np.reshape(sizes, (-1, 1))
        self.shape = exists.shape
        self.action_size = len(sizes)
        self.noise_size = self.mask_size = exists.size
        self.draw_noise = partial(draw_gumbel, size=exists.size)
        self.is_padded = not exists.all()
        self.logits = orthogonal(nn.Linear(num_features, sum(sizes)), gain=0.01)
        # The column of each choice; -1 is the padding behind the last.
        columns = np.where(exists.ravel(), np.cumsum(exists) - 1, -1)
        self.register_buffer("columns", torch.from_numpy(columns), persistent=False)

    def forward(self, features: Tensor) -> Categorical:
        logits = self.logits(features)
        if self.is_padded:
            logits = functional.pad(logits, (0, 1), value=MASKED_LOGIT)[..., self.columns]
        return Categorical(logits.view(*logits.shape[:-1], *self.shape))


class GaussianHead(PolicyHead):
    """Map features to D normals, with a state-independent log_std, or, with --use_sde, one that
    depends on the features."""

    action_dtype = np.float32

    def __init__(self, num_features: int, num_actions: int, config: "Config") -> None:
        super().__init__()
        self.squashes = config.squash_actions
        self.is_state_dependent = config.use_sde
        self.action_size = num_actions
        self.mean = orthogonal(nn.Linear(num_features, num_actions), gain=0.01)
        shape = (num_features, num_actions) if config.use_sde else (num_actions,)
        self.log_std = nn.Parameter(torch.full(shape, float(config.log_std_init)))
        self.noise_size = size = self.log_std.numel()
        self.draw_noise = partial(draw_normal, size=size)
        if config.use_sde:
            self.draw_noise = partial(draw_held, size=size, hold=config.sde_sample_freq)

    def forward(self, features: Tensor) -> Distribution:
        mean = self.mean(features)
        if self.is_state_dependent:
            gaussian: Any = StateDependentGaussian(mean, self.log_std, features.detach())
        else:
            gaussian = DiagonalGaussian(mean, self.log_std)
        return Squashed(gaussian) if self.squashes else gaussian


class ProductHead(PolicyHead):
    """Map features to a Product: a head for each part of a Tuple or Dict."""

    def __init__(self, heads: Sequence[PolicyHead]) -> None:
        super().__init__()
        self.heads: Any = nn.ModuleList(heads)
        for head in heads:
            self.action_size += head.action_size
            self.noise_size += head.noise_size
            self.mask_size += head.mask_size
            if head.action_dtype is np.float32:
                self.action_dtype = np.float32

    def forward(self, features: Tensor) -> Product:
        return Product([head(features) for head in self.heads], self.heads)

    def draw_noise(self, generator: np.random.Generator, num_steps: int) -> np.ndarray:
        return np.hstack([head.draw_noise(generator, num_steps) for head in self.heads])


def policy_head(num_features: int, space: Space[Any], config: "Config") -> PolicyHead:
    """Make the head from features (..., F) to a Distribution over an action space.

    Raises ConfigError if actions without bounds are to be squashed.
    """
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = space.values() if isinstance(space, spaces.Dict) else space
        return ProductHead([policy_head(num_features, part, config) for part in parts])
    if isinstance(space, spaces.Box):
        if config.squash_actions and not space.is_bounded():
            raise ConfigError(f"--squash_actions needs bounded actions, these are {space}")
        return GaussianHead(num_features, math.prod(space.shape), config)
    sizes = getattr(space, "nvec", getattr(space, "n", 0))
    if isinstance(space, spaces.MultiBinary):  # each bit is a choice of two
        sizes = [2] * math.prod(space.shape)
    return CategoricalHead(num_features, np.ravel(sizes).tolist())


def orthogonal(layer: Layer, gain: float) -> Layer:
    """Initialise a layer in place: orthogonal weights (Saxe et al. 2013), zero bias; return it."""
    assert layer.bias is not None
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer
