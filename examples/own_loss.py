"""Define a loss: the clipped objective plus a KL penalty (Schulman et al. 2017, section 4).

python main.py CartPole-v1 --learner=examples.own_loss:PenalizedLearner
"""

from typing import Any

from torch import Tensor

from ppo import Learner, losses
from ppo.rollout import Batch, Metrics


class PenalizedLearner(Learner):
    """Penalise the KL divergence between the policy that collected the rollout and the present one.

    A callback with a method loss can add such a term as well, to any learner."""

    coefficient = 0.5

    def loss(self, minibatch: Batch, distribution: Any, values: Tensor) -> tuple[Tensor, Metrics]:
        loss, metrics = super().loss(minibatch, distribution, values)
        log_probs = distribution.log_prob(minibatch["actions"])
        penalty = losses.approximate_kl(log_probs, minibatch["log_probs"])
        return loss + self.coefficient * penalty, {**metrics, "penalty": penalty.detach()}
