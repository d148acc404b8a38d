"""The value head: a linear layer whose outputs are scaled by statistics of returns."""

import torch
from numpy import ndarray
from torch import Tensor, nn

from ppo.config.config import Config
from ppo.extras.value_norm.flags import ValueNormFlags

MIN_STD = 1e-4  # as in the paper's experiments: returns that are all the same have no scale


def make_head(num_features: int, config: Config) -> "NormalizedHead | None":
    """Return the value head, if --value_norm asks for it."""
    asked = ValueNormFlags.of(config).value_norm != "none"
    return NormalizedHead(num_features) if asked else None


class NormalizedHead(nn.Linear):
    """Map features (..., F) to values (..., 1), mean + std * (weight features + bias), in units of
    rewards (van Hasselt et al. 2016, eq. 1).

    Mean and deviation are buffers, so that whatever reads the values need not know of them, with
    count, of the updates that they come from. Weights begin at 0, in any unit: the first values are
    0, and the mean of returns once that is known."""

    mean: Tensor
    std: Tensor
    count: Tensor

    def __init__(self, num_features: int) -> None:
        super().__init__(num_features, 1)
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)
        for name, value in (("mean", 0.0), ("std", 1.0), ("count", 0.0)):
            self.register_buffer(name, torch.tensor(value))

    def forward(self, features: Tensor) -> Tensor:
        return super().forward(features) * self.std + self.mean

    @torch.no_grad()
    def update(self, mean: float, variance: float, rate: float) -> None:
        """Move mean and variance to those of new returns, by exponential averages without the bias
        to their first values: with the t-th weight rate / (1 - (1 - rate)^t), 1 at first."""
        self.count.clamp_(min=0).add_(1)  # a file may hold any number
        weight = min(rate / (1 - (1 - rate) ** self.count.item()), 1.0)
        delta = mean - self.mean.item()
        between = (1 - weight) * delta**2  # E[x^2] - E[x]^2 of both, without its cancellation
        variance = (1 - weight) * self.std.item() ** 2 + weight * (variance + between)
        self.mean += weight * delta
        self.std.fill_(max(variance**0.5, MIN_STD))

    @torch.no_grad()
    def preserve_outputs(self, mean: Tensor, std: Tensor) -> None:
        """Rescale weights and bias, so that values stay what they were by another mean and
        deviation (van Hasselt et al. 2016, eq. 2 and proposition 1)."""
        self.weight *= std / self.std
        self.bias.copy_((std * self.bias + mean - self.mean) / self.std)

    def numpy_scale(self) -> tuple[ndarray, ndarray]:
        """Return mean and deviation as arrays () that follow them."""
        return self.mean.numpy(), self.std.numpy()
