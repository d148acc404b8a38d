"""Distributions over actions, and the layers that end in them. To sample, they take noise that was drawn for a whole
rollout: an action depends on its environment's own stream of random numbers only, whoever computes it.

However a space is nested, actions are (..., D): a column for each number in it."""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from ppo.models.errors import ModelMismatch
from ppo.models.noise import draw_gumbel, draw_normal
from ppo.models.numpy_mlp import HALF_LOG_TWO_PI, MASKED_LOGIT

NODES = np.linspace(
    -8, 8, 129
)  # of a standard normal; the rule is exact enough while the deviation is below 7
WEIGHTS = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()


class Distribution:
    """Of actions (..., D): sample(noise), mode(), and sums over the D columns (...): log_prob(actions), entropy()."""

    sample: Any
    mode: Any
    log_prob: Any
    entropy: Any

    def masked(self, mask: Tensor) -> "Distribution":
        """The same without the choices that a mask (..., M) forbids, where there are choices."""
        return self


class Categorical(Distribution):
    """D independent choices, each among K. logits: (..., D, K); mask: (..., D * K); noise: (..., D * K), standard
    Gumbel, to which logits are added and the greatest taken (Maddison et al. 2014, "A* Sampling", section 2)."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    def masked(self, mask: Tensor) -> "Categorical":
        return Categorical(self.logits.masked_fill(~mask.view_as(self.logits), MASKED_LOGIT))

    @cached_property
    def log_probs(self) -> Tensor:
        return functional.log_softmax(self.logits, -1)

    def sample(self, noise: Tensor) -> Tensor:
        return (self.logits + noise.view_as(self.logits)).argmax(-1)

    def mode(self) -> Tensor:
        return self.logits.argmax(-1)

    def log_prob(self, actions: Tensor) -> Tensor:
        return self.log_probs.gather(-1, actions.long().unsqueeze(-1)).squeeze(-1).sum(-1)

    def entropy(self) -> Tensor:
        return -(self.log_probs.exp() * self.log_probs).sum((-2, -1))


class DiagonalGaussian(Distribution):
    """D independent normals. mean: (..., D); log_std: (D,) or (..., D); noise: (..., D), standard normal."""

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


class StateDependentGaussian(DiagonalGaussian):
    """Exploration that is a linear function of features (..., F), the same one for as long as noise (..., F * D) is
    (Raffin et al. 2021, "Smooth Exploration for Robotic RL", eqs. 7 and 8). log_std: (F, D), of that function."""

    def __init__(self, mean: Tensor, log_std: Tensor, features: Tensor) -> None:
        self.std, self.features = log_std.exp(), features
        super().__init__(mean, 0.5 * (features.square() @ self.std.square() + 1e-6).log())

    def sample(self, noise: Tensor) -> Tensor:
        exploration = noise.view(*noise.shape[:-1], *self.std.shape) * self.std
        return self.mean + (self.features.unsqueeze(-2) @ exploration).squeeze(-2)


class Squashed(Distribution):
    """tanh of a Gaussian's samples. Actions are those before tanh: that is applied, as is the scale of the box, on
    their way to the environment. Probabilities are those of tanh(actions) (Haarnoja et al. 2018, appendix C)."""

    def __init__(self, gaussian: DiagonalGaussian) -> None:
        self.gaussian, self.sample, self.mode = gaussian, gaussian.sample, gaussian.mode

    def log_prob(self, actions: Tensor) -> Tensor:
        return self.gaussian.log_prob(actions) - _log_slope_of_tanh(actions).sum(-1)

    def entropy(self) -> Tensor:
        """The Gaussian's plus E[log(1 - tanh^2)], by the trapezoidal rule."""
        mean, std = self.gaussian.mean, self.gaussian.log_std.exp()
        nodes, weights = (mean.new_tensor(x) for x in (NODES, WEIGHTS))
        slopes = _log_slope_of_tanh(mean.unsqueeze(-1) + std.unsqueeze(-1) * nodes) @ weights
        return self.gaussian.entropy() + slopes.sum(-1)


def _log_slope_of_tanh(x: Tensor) -> Tensor:
    """log(1 - tanh(x)^2), for large x too."""
    return 2 * (math.log(2) - x - functional.softplus(-2 * x))


class Product(Distribution):
    """Independent parts, whose columns stand side by side; heads know how many each has."""

    def __init__(self, parts: Sequence[Distribution], heads: Sequence[Any]) -> None:
        self.parts, self.heads = parts, heads

    def masked(self, mask: Tensor) -> "Product":
        return Product(
            [part.masked(own) for part, own in self._split(mask, "mask_size")], self.heads
        )

    def sample(self, noise: Tensor) -> Tensor:
        return torch.cat([part.sample(own) for part, own in self._split(noise, "noise_size")], -1)

    def mode(self) -> Tensor:
        return torch.cat([part.mode() for part in self.parts], -1)

    def log_prob(self, actions: Tensor) -> Tensor:
        return torch.stack(
            [part.log_prob(own) for part, own in self._split(actions, "action_size")]
        ).sum(0)

    def entropy(self) -> Tensor:
        return torch.stack([part.entropy() for part in self.parts]).sum(0)

    def _split(self, columns: Tensor, size: str) -> Any:
        return zip(
            self.parts, columns.split([getattr(head, size) for head in self.heads], -1), strict=True
        )


class CategoricalHead(nn.Module):
    """From features (..., F) to choices of several sizes, padded to the largest."""

    action_dtype: Any = np.int64
    columns: Tensor

    def __init__(self, num_features: int, sizes: Sequence[int]) -> None:
        super().__init__()
        exists = np.arange(max(sizes)) < np.reshape(sizes, (-1, 1))
        self.shape, self.action_size, self.noise_size, self.mask_size = (
            exists.shape,
            len(sizes),
            *[exists.size] * 2,
        )
        self.logits = orthogonal(nn.Linear(num_features, sum(sizes)), gain=0.01)
        columns = np.full(
            exists.shape, -1
        )  # the logit of each choice, or the padding behind the last one
        columns[exists] = np.arange(sum(sizes))
        self.is_padded = not exists.all()
        self.num_choices = (
            None if self.is_padded else max(sizes)
        )  # for ppo.models.numpy_mlp; None: it does not have it
        self.register_buffer("columns", torch.from_numpy(columns.ravel()), persistent=False)

    def forward(self, features: Tensor) -> Categorical:
        logits = self.logits(features)
        if self.is_padded:
            logits = functional.pad(logits, (0, 1), value=MASKED_LOGIT)[..., self.columns]
        return Categorical(logits.view(*logits.shape[:-1], *self.shape))

    def draw_noise(self, generator: np.random.Generator, num_steps: int) -> np.ndarray:
        return draw_gumbel(generator, num_steps, self.noise_size)


class BernoulliHead(CategoricalHead):
    """From features (..., F) to D bits: choices of two, by one logit each."""

    def __init__(self, num_features: int, num_bits: int) -> None:
        super().__init__(num_features, [2] * num_bits)
        self.logits, self.num_choices = (
            orthogonal(nn.Linear(num_features, num_bits), gain=0.01),
            None,
        )

    def forward(self, features: Tensor) -> Categorical:
        logits = self.logits(features)
        return Categorical(torch.stack([torch.zeros_like(logits), logits], -1))


class GaussianHead(nn.Module):
    """From features (..., F) to D normals, whose deviation depends on the features only for gSDE."""

    action_dtype: Any = np.float32
    mask_size = 0

    def __init__(self, num_features: int, num_actions: int, config: Any) -> None:
        super().__init__()
        self.action_size, self.config = num_actions, config
        self.num_choices = None if config.use_sde or config.squash_actions else 0
        self.mean = orthogonal(nn.Linear(num_features, num_actions), gain=0.01)
        shape = (num_features, num_actions) if config.use_sde else (num_actions,)
        self.log_std = nn.Parameter(torch.full(shape, float(config.log_std_init)))
        self.noise_size = self.log_std.numel()

    def forward(self, features: Tensor) -> Distribution:
        mean, log_std = self.mean(features), self.log_std
        sde = self.config.use_sde
        gaussian = (
            StateDependentGaussian(mean, log_std, features.detach())
            if sde
            else DiagonalGaussian(mean, log_std)
        )
        return Squashed(gaussian) if self.config.squash_actions else gaussian

    def draw_noise(self, generator: np.random.Generator, num_steps: int) -> np.ndarray:
        every = self.config.sde_sample_freq if self.config.use_sde else 1
        return draw_normal(generator, num_steps, self.noise_size, every)


class ProductHead(nn.Module):
    """From features (..., F) to a distribution for each part of a Tuple or Dict."""

    def __init__(self, heads: Sequence[Any]) -> None:
        super().__init__()
        self.heads: Any = nn.ModuleList(heads)
        self.num_choices = None
        sizes = zip(
            *((head.action_size, head.noise_size, head.mask_size) for head in heads), strict=True
        )
        self.action_size, self.noise_size, self.mask_size = map(sum, sizes)
        self.action_dtype = (
            np.int64 if all(head.action_dtype is np.int64 for head in heads) else np.float32
        )

    def forward(self, features: Tensor) -> Product:
        return Product([head(features) for head in self.heads], self.heads)

    def draw_noise(self, generator: np.random.Generator, num_steps: int) -> np.ndarray:
        return np.concatenate(
            [head.draw_noise(generator, num_steps) for head in self.heads], axis=1
        )


def policy_head(num_features: int, space: Any, config: Any) -> Any:
    """The layer from features (..., F) to a Distribution over a space. Its action_size D, action_dtype, noise_size and
    mask_size say what columns actions, noise and masks have; draw_noise(generator, T) draws noise (T, noise_size).
    Raises ModelMismatch if actions without bounds are to be squashed into them."""
    if isinstance(space, (spaces.Tuple, spaces.Dict)):
        parts = space.values() if isinstance(space, spaces.Dict) else space
        return ProductHead([policy_head(num_features, part, config) for part in parts])
    if isinstance(space, spaces.Box):
        if config.squash_actions and not space.is_bounded():
            raise ModelMismatch(
                f"--squash_actions is for bounded actions, these are {space}: leave it out"
            )
        return GaussianHead(num_features, math.prod(space.shape), config)
    if isinstance(space, spaces.MultiBinary):
        return BernoulliHead(num_features, math.prod(space.shape))
    return CategoricalHead(
        num_features, np.ravel(getattr(space, "nvec", getattr(space, "n", 0))).tolist()
    )


def orthogonal(layer: Any, gain: float) -> Any:
    """Orthogonal weights (Saxe et al. 2013), zero bias."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer
