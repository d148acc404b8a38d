"""Learning from a teacher: its distributions of actions, beside the objective of PPO or alone."""

from typing import Any

from torch import Tensor

from ppo.algorithm import losses
from ppo.algorithm.learner import Learner
from ppo.algorithm.rollout import Batch, Metrics
from ppo.config.schedule import scheduled

TEACHER = "teacher"  # the batch's table (T * N, W): parameters of the teacher's distributions


class Distillation(Learner):
    """Add teacher_coef * E[KL(teacher || policy)] to the loss, the mean over the student's own
    states (Schmitt et al. 2018, "Kickstarting Deep RL"; Ross et al. 2011, DAgger).

    With --distill, only the loss of the values stays beside it."""

    def loss(self, minibatch: Batch, distribution: Any, values: Tensor) -> tuple[Tensor, Metrics]:
        loss, metrics = super().loss(minibatch, distribution, values)
        if self.config.distill:
            loss = self.config.value_coef * losses.value_loss(
                values, minibatch["values"], minibatch["returns"], clip_coef=self.clip_value_coef
            )
        divergence = distribution.kl_from(minibatch[TEACHER]).mean()
        loss = loss + self.teacher_coef * divergence
        return loss, {**metrics, "teacher_kl": divergence.detach()}

    def _set_coefficients(self, remaining: float) -> None:
        super()._set_coefficients(remaining)
        self.teacher_coef = scheduled(self.config.teacher_coef, remaining)
