"""Generalized advantage estimation (Schulman et al. 2016, section 3)."""

import numpy as np
from numpy import ndarray


def generalized_advantages(
    rewards: ndarray,
    values: ndarray,
    next_values: ndarray,
    *,
    terminations: ndarray,
    truncations: ndarray,
    gamma: float,
    gae_lambda: float,
) -> ndarray:
    """Compute A_t = d_t + gamma lambda A_{t+1}, d_t = r_t + gamma V(s_{t+1}) - V(s_t) (equations 11
    and 16). All arguments and the result: (T, N). next_values: of the observations that actions led
    to, the true last ones where an episode was truncated, since a time limit is not a failure
    (Pardo et al. 2018). After a termination, nothing has value. Both end the sum over t."""
    errors = rewards + gamma * next_values * ~terminations - values
    decay = gamma * gae_lambda * ~(terminations | truncations)
    advantages = np.empty_like(errors)
    advantage = np.zeros_like(errors[0])
    for t in reversed(range(len(errors))):
        advantage = errors[t] + decay[t] * advantage
        advantages[t] = advantage
    return advantages
