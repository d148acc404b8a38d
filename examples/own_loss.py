"""Define a loss: the clipped one plus a KL penalty (Schulman et al. 2017, section 4).

python -m examples.own_loss, or
python main.py --env_name=CartPole-v1 --learner=examples.own_loss:PenalizedLearner
"""

from typing import Any

from torch import Tensor

from ppo import Config, Learner, train
from ppo.algorithm.rollout import Batch


class PenalizedLearner(Learner):
    """Penalise the KL between the behaviour policy and the present one."""

    def loss(
        self, minibatch: Batch, distribution: Any, values: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        loss, metrics = super().loss(minibatch, distribution, values)
        log_ratio = distribution.log_prob(minibatch["actions"]) - minibatch["log_probs"]
        penalty = (log_ratio.exp() - 1 - log_ratio).mean()
        return loss + 0.5 * penalty, {**metrics, "penalty": penalty.detach()}


if __name__ == "__main__":
    config = Config(learning_rate=1e-3, total_steps=50_000)
    train("CartPole-v1", config, learner=PenalizedLearner)
