"""Teach a policy that left and right are alike: a mirror loss, as legged robots are trained with.

Yu et al. 2018, "Learning Symmetric and Low-Energy Locomotion": what the policy does in a state, and
what it does in the mirrored state, should mirror each other. A learner for a robot derives from
MirrorLearner, and overrides mirror_observations and mirror_actions.

python main.py --env_name=CartPole-v1 --learner=examples.mirror:MirrorCartPole
"""

from typing import Any

from numpy import ndarray
from torch import Tensor

from ppo import Learner
from ppo.algorithm.rollout import Batch, Metrics, Rollout


class MirrorLearner(Learner):
    """Add coefficient * E[(log pi(a|s) - log pi(M(a)|M(s)))^2] to the loss; M is the mirror.

    The paper compares the means of Gaussians, E|pi(s) - M(pi(M(s)))|^2; log-probabilities of the
    actions taken compare any distributions. For models without a memory, and actions without masks.
    """

    coefficient = 1.0

    def mirror_observations(self, observations: ndarray) -> ndarray:
        """Return observations (..., *observation), as the environment gives them, mirrored."""
        raise NotImplementedError

    def mirror_actions(self, actions: Tensor) -> Tensor:
        """Return actions (B, D) mirrored; mirrored twice, they are as before."""
        raise NotImplementedError

    def make_batch(self, rollout: Rollout, normalize: Any, rewards: ndarray) -> Batch:
        # Before they are normalised: the mean of observations has its mirror image, too.
        mirrored = normalize(self.mirror_observations(rollout.observations[:-1]))
        rows = mirrored.reshape(-1, *mirrored.shape[2:])
        return {
            **super().make_batch(rollout, normalize, rewards),
            "mirrored": self.to_device(rows),
        }

    def loss(self, minibatch: Batch, distribution: Any, values: Tensor) -> tuple[Tensor, Metrics]:
        loss, metrics = super().loss(minibatch, distribution, values)
        actions = minibatch["actions"]
        mirrored, _ = self.forward({"observations": minibatch["mirrored"]})
        differences = distribution.log_prob(actions) - mirrored.log_prob(
            self.mirror_actions(actions)
        )
        asymmetry = differences.square().mean()
        return loss + self.coefficient * asymmetry, {**metrics, "asymmetry": asymmetry.detach()}


class MirrorCartPole(MirrorLearner):
    """CartPole seen from behind: positions and velocities change their signs, and pushes sides."""

    def mirror_observations(self, observations: ndarray) -> ndarray:
        return -observations

    def mirror_actions(self, actions: Tensor) -> Tensor:
        return 1 - actions
