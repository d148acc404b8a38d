"""Generalized advantage estimation (Schulman et al. 2016, section 3)."""

import numpy as np


def generalized_advantages(
    rewards: np.ndarray,
    values: np.ndarray,
    next_values: np.ndarray,
    terminations: np.ndarray,
    truncations: np.ndarray,
    gamma: float,
    gae_lambda: float,
) -> np.ndarray:
    """A_t = d_t + gamma lambda A_{t+1}, with d_t = r_t + gamma V(s_{t+1}) - V(s_t) (eqs. 11 and 16).

    All arguments and the result: (T, N). next_values: of the observation that action t led to, the true last one where
    an episode was truncated: a time limit is not a failure (Pardo et al. 2018). After a termination nothing has value.
    Both cut the trace, for what follows is another episode."""
    errors = rewards + gamma * next_values * ~terminations - values
    decay = gamma * gae_lambda * ~(terminations | truncations)
    advantages = np.empty_like(errors)
    advantage = np.zeros_like(errors[0])
    for t in range(len(errors) - 1, -1, -1):
        advantages[t] = advantage = errors[t] + decay[t] * advantage
    return advantages


class GAE:
    """The same as labml's annotated implementation has it: an environment is a row, and every end is a termination."""

    def __init__(self, n_workers: int, worker_steps: int, gamma: float, lambda_: float) -> None:
        self.shape, self.discounts = (n_workers, worker_steps), (gamma, lambda_)

    def __call__(self, done: np.ndarray, rewards: np.ndarray, values: np.ndarray) -> np.ndarray:
        """done, rewards: (n_workers, worker_steps); values: one step more. Returns (n_workers, worker_steps)."""
        ends = np.reshape(done, self.shape).T.astype(np.bool_)
        tables = (rewards.T, values[:, :-1].T, values[:, 1:].T, ends, np.zeros_like(ends))
        return generalized_advantages(*tables, *self.discounts).T
