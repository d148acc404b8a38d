"""The losses and advantages with the interfaces of labml's annotated PPO implementation.

from examples.labml_interface import GAE, ClippedPPOLoss, ClippedValueFunctionLoss
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray
from torch import Tensor, nn

from ppo.algorithm.gae import generalized_advantages
from ppo.algorithm.losses import clip_fraction, clipped_surrogate, value_loss


class ClippedPPOLoss(nn.Module):
    """clipped_surrogate with the interface of labml's annotated implementation.

    clip_fraction: the last call's.
    """

    def forward(
        self, log_pi: Tensor, sampled_log_pi: Tensor, advantage: Tensor, clip: float
    ) -> Tensor:
        self.clip_fraction = clip_fraction(log_pi.detach(), sampled_log_pi, clip).item()
        return clipped_surrogate(log_pi, sampled_log_pi, advantage, clip_coef=clip)


class ClippedValueFunctionLoss(nn.Module):
    """value_loss with the interface of labml's annotated implementation."""

    def forward(
        self, value: Tensor, sampled_value: Tensor, sampled_return: Tensor, clip: float
    ) -> Tensor:
        return value_loss(value, sampled_value, sampled_return, clip_coef=clip)


@dataclass
class GAE:
    """generalized_advantages with the interface of labml's annotated implementation.

    An environment is a row, and every end is a termination.
    """

    n_workers: int
    worker_steps: int
    gamma: float
    lambda_: float

    def __call__(self, done: ndarray, rewards: ndarray, values: ndarray) -> Any:
        """Compute advantages (n_workers, worker_steps).

        done, rewards: (n_workers, worker_steps); values: one step more.
        """
        ends = np.asarray(done, np.bool_).T
        advantages = generalized_advantages(
            rewards.T,
            values[:, :-1].T,
            values[:, 1:].T,
            terminations=ends,
            truncations=np.zeros_like(ends),
            gamma=self.gamma,
            gae_lambda=self.lambda_,
        )
        return advantages.T
