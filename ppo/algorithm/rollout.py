"""The rollout: T steps of N environments, time-major, in memory shared with workers."""

from types import SimpleNamespace
from typing import Any

from numpy import ndarray

Batch = dict[str, Any]  # by name, (T * N, ...): tensors on the learner's device, or numpy arrays
Metrics = dict[str, Any]


class Rollout(SimpleNamespace):
    """Hold one rollout: the tables of ppo.algorithm.buffers, in memory shared with workers.

    Row t + 1 of observations is what action t led to, or the first observation of the next episode.
    Row T is row 0 of the next rollout; the same holds for states and action_masks. info: what the
    workers reported beside the tensors (ppo.envs.worker.RolloutInfo), once it is collected.
    """

    @property
    def dones(self) -> ndarray:
        """Steps (T, N) that ended an episode, by termination or truncation."""
        return self.terminations | self.truncations

    @property
    def is_present(self) -> ndarray | None:
        """Steps (T, N) to learn from; None for all of them."""
        return self.present[:-1] if self.present.size else None

    def of_present(self, table: ndarray) -> ndarray:
        """Return the rows of a table (T, N, ...) to learn from: (B, ...)."""
        if self.is_present is None:
            return table.reshape(-1, *table.shape[2:])
        return table[self.is_present]
