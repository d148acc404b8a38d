"""Teach a policy that left and right are alike: a mirror loss, as used for legged robots.

Yu et al. 2018, "Learning Symmetric and Low-Energy Locomotion": what the policy does in a state and
in the mirrored state should mirror each other. For a robot of yours, derive from MirrorLearner and
override mirror_observations and mirror_actions.

python main.py CartPole-v1 --learner=examples.mirror:MirrorCartPole
"""

from typing import Any

from numpy import ndarray
from torch import Tensor

from ppo import Learner
from ppo.envs.normalize import NormalizeObservation
from ppo.rollout import Batch, Metrics, Rollout


class MirrorLearner(Learner):
    """Add coefficient * E[(log pi(a|s) - log pi(M(a)|M(s)))^2] to the loss; M is the mirror.

    The paper compares the means of Gaussians; log-probabilities of the actions taken compare any
    distributions. For vectors as observations, networks without memory, actions without masks."""

    coefficient = 1.0

    def mirror_observations(self, observations: ndarray) -> ndarray:
        """Return observations (..., *observation), as the environment gives them, mirrored."""
        raise NotImplementedError

    def mirror_actions(self, actions: Tensor) -> Tensor:
        """Return actions (B, D) mirrored; mirrored twice, they are as before."""
        raise NotImplementedError

    def make_batch(
        self, rollout: Rollout, normalize: NormalizeObservation, rewards: ndarray
    ) -> Batch:
        batch = super().make_batch(rollout, normalize, rewards)
        # Mirrored before they are normalized, since the mean has a mirror image, too.
        mirrored = normalize(self.mirror_observations(rollout.observations[:-1]))
        return {**batch, "mirrored": self.table(mirrored).flatten(0, 1)}

    def loss(self, minibatch: Batch, distribution: Any, values: Tensor) -> tuple[Tensor, Metrics]:
        loss, metrics = super().loss(minibatch, distribution, values)
        actions = minibatch["actions"]
        mirrored, _ = self.forward({"observations": minibatch["mirrored"]})
        log_probs = mirrored.log_prob(self.mirror_actions(actions))
        asymmetry = (distribution.log_prob(actions) - log_probs).square().mean()
        return loss + self.coefficient * asymmetry, {**metrics, "asymmetry": asymmetry.detach()}


class MirrorCartPole(MirrorLearner):
    """CartPole seen from behind: positions and velocities change signs, and pushes change sides."""

    def mirror_observations(self, observations: ndarray) -> ndarray:
        return -observations

    def mirror_actions(self, actions: Tensor) -> Tensor:
        return 1 - actions
