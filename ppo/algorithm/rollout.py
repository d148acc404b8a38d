"""The rollout: T steps of N environments, time-major, in memory shared with workers."""

from types import SimpleNamespace
from typing import Any

Batch = dict[str, Any]  # by name, (T * N, ...): tensors on the learner's device, or numpy arrays
Metrics = dict[str, Any]


class Rollout(SimpleNamespace):
    """Hold one rollout: the tables of ppo.algorithm.buffers, in memory shared with workers.

    Row t + 1 of observations is what action t led to, or the first observation of the next episode.
    Row T is row 0 of the next rollout; the same holds for states and action_masks. info: what the
    workers reported beside the tensors (ppo.envs.worker.RolloutInfo), once it is collected.
    """

    @property
    def dones(self):
        """Steps (T, N) that ended an episode, by termination or truncation."""
        return self.terminations | self.truncations
