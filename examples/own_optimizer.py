"""Use another optimizer: AdamW, which decays the weights.

python main.py CartPole-v1 --learner=examples.own_optimizer:DecayLearner
"""

import torch

from ppo import Learner


class DecayLearner(Learner):
    """Step all weights, which are one parameter, by AdamW; --learning_rate and schedules apply."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW([self.parameter], self.learning_rate, weight_decay=1e-3)
