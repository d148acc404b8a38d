"""Generalized state-dependent exploration (Raffin et al. 2021, "Smooth Exploration for Robotic
RL")."""

import math
from functools import partial
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box
from torch import Tensor, nn

from ppo.components import Components
from ppo.config.config import Config
from ppo.extras.exploration.flags import ExplorationFlags
from ppo.models.distributions import DiagonalGaussian, GaussianHead
from ppo.models.errors import ModelMismatch
from ppo.models.noise import draw_normal


def make_head(num_features: int, space: Space[Any], config: Config) -> GaussianHead | None:
    """Return the policy head for continuous actions, if --use_sde asks for it."""
    if not isinstance(space, Box) or not ExplorationFlags.of(config).use_sde:
        return None
    return ExploringHead(num_features, math.prod(space.shape), config)


def check(parts: Components) -> list[str]:
    """Raise ModelMismatch if there are no continuous actions to explore."""
    if (
        ExplorationFlags.of(parts.config).use_sde
        and parts.model.policy_head.action_dtype is np.int64
    ):
        raise ModelMismatch(
            f"--use_sde is for continuous actions, these are {parts.spaces.actions}: leave it out"
        )
    return []


class StateDependentGaussian(DiagonalGaussian):
    """A Gaussian whose exploration is a random linear function of features (..., F).

    noise: (..., F * D), of which the same values give the same function. log_std: (F, D), of the
    function's weights (eqs. 7 and 8).
    """

    def __init__(self, mean: Tensor, log_std: Tensor, features: Tensor) -> None:
        self.std = log_std.exp()
        self.features = features
        super().__init__(mean, 0.5 * (features.square() @ self.std.square() + 1e-6).log())

    def sample(self, noise: Tensor) -> Tensor:
        exploration = noise.view(*noise.shape[:-1], *self.std.shape) * self.std
        return self.mean + (self.features.unsqueeze(-2) @ exploration).squeeze(-2)


class ExploringHead(GaussianHead):
    """Map features to StateDependentGaussians."""

    def __init__(self, num_features: int, num_actions: int, config: Config) -> None:
        super().__init__(num_features, num_actions, config)
        log_std = self.log_std.detach().expand(num_features, num_actions).clone()
        self.log_std = nn.Parameter(log_std)
        self.noise_size = self.log_std.numel()
        sample_freq = ExplorationFlags.of(config).sde_sample_freq
        self.draw_noise = partial(draw_held, size=self.noise_size, sample_freq=sample_freq)

    def gaussian(self, features: Tensor) -> DiagonalGaussian:
        return StateDependentGaussian(self.mean(features), self.log_std, features.detach())


def draw_held(
    generator: np.random.Generator, num_steps: int, size: int, sample_freq: int
) -> np.ndarray:
    """Draw standard normal noise (num_steps, size) for a rollout of one environment.

    Each draw is held for sample_freq steps; if that is below 1, for the whole rollout."""
    if sample_freq < 1:
        sample_freq = num_steps
    draws = draw_normal(generator, math.ceil(num_steps / sample_freq), size)
    return np.repeat(draws, sample_freq, axis=0)[:num_steps]
