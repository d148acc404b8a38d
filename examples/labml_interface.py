"""Use losses and advantages with the interfaces of labml's annotated PPO implementation.

python main.py CartPole-v1 --learner=examples.labml_interface:LabmlLearner
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray
from torch import Tensor, nn

from ppo import Learner, losses
from ppo.gae import generalized_advantages
from ppo.rollout import Batch, Metrics, Rollout


class ClippedPPOLoss(nn.Module):
    """The clipped surrogate objective. clip_fraction: of the last call."""

    def forward(
        self, log_pi: Tensor, sampled_log_pi: Tensor, advantage: Tensor, clip: float
    ) -> Tensor:
        self.clip_fraction = losses.clip_fraction(log_pi.detach(), sampled_log_pi, clip).item()
        return losses.clipped_surrogate(log_pi, sampled_log_pi, advantage, clip_coef=clip)


class ClippedValueFunctionLoss(nn.Module):
    """The clipped value loss."""

    def forward(
        self, value: Tensor, sampled_value: Tensor, sampled_return: Tensor, clip: float
    ) -> Tensor:
        return losses.value_loss(value, sampled_value, sampled_return, clip_coef=clip)


@dataclass
class GAE:
    """Generalized advantage estimation. Each row is an environment; every end is a termination."""

    n_workers: int
    worker_steps: int
    gamma: float
    lambda_: float

    def __call__(self, done: ndarray, rewards: ndarray, values: ndarray) -> ndarray:
        """Return advantages (n_workers, worker_steps), the shape of done and rewards as well.
        values: (n_workers, worker_steps + 1)."""
        ends = np.asarray(done, np.bool_).T
        return generalized_advantages(
            rewards.T,
            values[:, :-1].T,
            values[:, 1:].T,
            terminations=ends,
            truncations=np.zeros_like(ends),
            gamma=self.gamma,
            gae_lambda=self.lambda_,
        ).T


class LabmlLearner(Learner):
    """PPO from these parts. As in labml's implementation, values are clipped by --clip_coef, and
    truncated episodes are not bootstrapped."""

    policy_loss = ClippedPPOLoss()
    value_loss = ClippedValueFunctionLoss()

    def advantages(
        self, rollout: Rollout, rewards: ndarray, values: ndarray, next_values: ndarray
    ) -> ndarray:
        num_steps, num_envs = rewards.shape
        estimate = GAE(num_envs, num_steps, self.config.gamma, self.config.gae_lambda)
        with_next = np.concatenate([values, next_values[-1:]])
        return estimate(rollout.dones.T, rewards.T, with_next.T).T

    def loss(self, minibatch: Batch, distribution: Any, values: Tensor) -> tuple[Tensor, Metrics]:
        now = self.coefficients
        log_pi = distribution.log_prob(minibatch["actions"])
        old = minibatch["log_probs"]
        policy_loss = self.policy_loss(log_pi, old, minibatch["advantages"], now.clip_coef)
        sampled = minibatch["values"], minibatch["returns"]
        value_loss = self.value_loss(values, *sampled, now.clip_coef)
        entropy = distribution.entropy().mean()
        loss = policy_loss + now.value_coef * value_loss - now.entropy_coef * entropy
        metrics = {
            "policy_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy": entropy.detach(),
            "approx_kl": losses.approximate_kl(log_pi.detach(), old),
            "clip_fraction": self.policy_loss.clip_fraction,
        }
        return loss, metrics
