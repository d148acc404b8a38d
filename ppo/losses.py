"""The terms of the PPO objective and their metrics: pure functions of tensors (B,)."""

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0  # exponentials of much larger ones overflow, and gradients become NaN


def clipped_surrogate(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, *, clip_coef: float
) -> Tensor:
    """Compute -E[min(r A, clip(r, 1 - e, 1 + e) A)], r = pi(a|s) / pi_old(a|s), e = clip_coef
    (Schulman et al. 2017, eq. 7)."""
    ratio = (log_probs - old_log_probs).clamp(max=MAX_LOG_RATIO).exp()
    clipped = ratio.clamp(1 - clip_coef, 1 + clip_coef)
    return -torch.min(ratio * advantages, clipped * advantages).mean()


def value_loss(
    values: Tensor, old_values: Tensor, returns: Tensor, *, clip_coef: float | None
) -> Tensor:
    """Compute 1/2 E[max((V - R)^2, (V_old + clip(V - V_old, -e, e) - R)^2)] (Baselines), e =
    clip_coef; without one 1/2 E[(V - R)^2]."""
    errors = (values - returns).square()
    if clip_coef is not None:
        clipped = old_values + (values - old_values).clamp(-clip_coef, clip_coef)
        errors = torch.max(errors, (clipped - returns).square())
    return 0.5 * errors.mean()


def standardize(advantages: Tensor) -> Tensor:
    """Scale advantages to mean 0 and standard deviation 1; a single one stays as it is."""
    if len(advantages) < 2:
        return advantages
    deviation, mean = torch.std_mean(advantages)
    return (advantages - mean) / (deviation + 1e-8)


def approximate_kl(log_probs: Tensor, old_log_probs: Tensor) -> Tensor:
    """Estimate KL(old || new) by E[(r - 1) - log r] (k3 in Schulman 2020, "Approximating KL")."""
    log_ratio = log_probs - old_log_probs
    return (log_ratio.exp() - 1 - log_ratio).mean()


def clip_fraction(log_probs: Tensor, old_log_probs: Tensor, clip_coef: float) -> Tensor:
    """Compute the share of samples whose ratio is outside 1 +/- e."""
    ratio = (log_probs - old_log_probs).exp()
    return ((ratio - 1).abs() > clip_coef).float().mean()


def explained_variance(values: Tensor, returns: Tensor) -> Tensor:
    """Compute 1 - Var(R - V) / Var(R): 1 for perfect values, 0 for constant values or returns."""
    of_returns, of_errors = torch.stack([returns, returns - values]).var(1)
    return torch.where(of_returns > 0, 1 - of_errors / of_returns, 0.0)
