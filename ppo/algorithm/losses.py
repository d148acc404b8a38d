"""The terms of the PPO objective and what is watched about them. Pure functions of tensors (B,)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

LARGEST_LOG_RATIO = 20.0  # beyond which a ratio's gradient would not be a number for long


def clipped_surrogate(
    log_probs: Tensor, behaviour_log_probs: Tensor, advantages: Tensor, clip_coef: float
) -> Tensor:
    """-E[min(r A, clip(r, 1 - e, 1 + e) A)], r = pi(a|s) / pi_old(a|s) (Schulman et al. 2017, eq. 7)."""
    ratio = (log_probs - behaviour_log_probs).clamp(max=LARGEST_LOG_RATIO).exp()
    clipped = ratio.clamp(1 - clip_coef, 1 + clip_coef)
    return -torch.min(ratio * advantages, clipped * advantages).mean()


def value_loss(
    values: Tensor, behaviour_values: Tensor, returns: Tensor, clip_coef: float | None = None
) -> Tensor:
    """1/2 E[max((V - R)^2, (V_b + clip(V - V_b, -e, e) - R)^2)] (Baselines); for None, 1/2 E[(V - R)^2]."""
    errors = (values - returns).square()
    if clip_coef is not None:
        clipped = behaviour_values + (values - behaviour_values).clamp(-clip_coef, clip_coef)
        errors = torch.max(errors, (clipped - returns).square())
    return 0.5 * errors.mean()


def standardize(advantages: Tensor, moments: Any = None, epsilon: float = 1e-8) -> Tensor:
    """Mean 0 and deviation 1; a single advantage stays as it is. moments: (deviation, mean), if there are others of the
    same minibatch elsewhere."""
    if len(advantages) < 2 and moments is None:
        return advantages
    deviation, mean = moments or torch.std_mean(advantages)
    return (advantages - mean) / (deviation + epsilon)


def approximate_kl(log_probs: Tensor, behaviour_log_probs: Tensor) -> Tensor:
    """KL(behaviour || policy) by the estimator k3, E[(r - 1) - log r] (Schulman 2020, "Approximating KL")."""
    log_ratio = log_probs - behaviour_log_probs
    return (log_ratio.exp() - 1 - log_ratio).mean()


def clip_fraction(log_probs: Tensor, behaviour_log_probs: Tensor, clip_coef: float) -> Tensor:
    """Share of samples whose ratio is outside 1 +/- e."""
    ratio = (log_probs - behaviour_log_probs).exp()
    return ((ratio - 1).abs() > clip_coef).float().mean()


def explained_variance(
    values: Tensor, returns: Tensor, variance: Callable[[Tensor], Tensor] = lambda rows: rows.var(1)
) -> Tensor:
    """1 - Var(R - V) / Var(R): 1 for perfect values, 0 for constant ones; 0 where returns do not vary. variance: (n,)
    of numbers (n, B), and of others elsewhere if there are any."""
    of_returns, of_errors = variance(torch.stack([returns, returns - values]))
    return torch.where(of_returns > 0, 1 - of_errors / of_returns, 0.0)


class ClippedPPOLoss(nn.Module):
    """clipped_surrogate as labml's annotated implementation has it; clip_fraction is the last call's."""

    def forward(
        self, log_pi: Tensor, sampled_log_pi: Tensor, advantage: Tensor, clip: float
    ) -> Tensor:
        self.clip_fraction = clip_fraction(log_pi.detach(), sampled_log_pi, clip).item()
        return clipped_surrogate(log_pi, sampled_log_pi, advantage, clip)


class ClippedValueFunctionLoss(nn.Module):
    """value_loss as labml's annotated implementation has it."""

    def forward(
        self, value: Tensor, sampled_value: Tensor, sampled_return: Tensor, clip: float
    ) -> Tensor:
        return value_loss(value, sampled_value, sampled_return, clip)
