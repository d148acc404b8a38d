"""The rollout: T steps of N environments, time-major, in memory shared with workers."""

from types import SimpleNamespace
from typing import Any

from numpy import ndarray

Batch = dict[str, Any]  # by name, (T * N, ...): tensors on the learner's device, or numpy arrays
Metrics = dict[str, Any]


class Rollout(SimpleNamespace):
    """Hold one rollout, T steps of N environments, as tables in memory shared with workers.

    Row t + 1 of observations is what action t led to, or the first observation of the next episode.
    Tables with a row T begin the next rollout with it, as their row 0. A table that a run does not
    need has no columns (size 0). Extensions may add tables, see Extension.columns."""

    observations: ndarray  # (T + 1, N, *observation)
    actions: ndarray  # (T, N, D): the policy's own, neither squashed nor clipped
    rewards: ndarray  # (T, N): the environment's own
    terminations: ndarray  # (T, N) bool
    truncations: ndarray  # (T, N) bool: False where the step also terminated
    features: ndarray  # (T, N, F): what policy and value read, if a trunk of both has made them
    states: ndarray  # (T + 1, N, S): of a recurrent network
    action_masks: ndarray  # (T + 1, N, M) bool: the actions that are allowed
    present: ndarray  # (T + 1, N) bool: False where an agent is gone, and does not act
    info: Any  # what workers report beside the tables: ppo.envs.worker.RolloutInfo

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
