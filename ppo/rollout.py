"""The rollout: T steps of N environments, time-major, in memory shared with workers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy import ndarray

from ppo.envs.worker import Report

Batch = dict[str, Any]  # tables (T * N, ...) by name: tensors on the learner's device
Metrics = dict[str, Any]


@dataclass
class Rollout:
    """One rollout, as tables of numpy arrays by name; report: what workers report besides these.

    Row t + 1 of observations is the result of action t, or, after the end of an episode, the first
    observation of the next one. In tables of T + 1 rows, row T becomes row 0 of the next rollout.

    observations, images.NAME: (T + 1, N, *observation)
    actions: (T, N, D), the policy's own, not clipped; rewards: (T, N), the environment's own
    terminations, truncations: (T, N) bool
    features: (T, N, F), of a trunk that policy and value share
    states: (T + 1, N, S), of a recurrent network
    action_masks: (T + 1, N, M) bool, allowed choices
    present: (T, N) bool, see acting

    A table that a run does not need has no columns. In the same memory are weights (P,), by which
    workers act; shift and scale, of observations; counts (N,), of resets; and beats (N, 8): number
    i of its column 0 counts the calls by the worker whose first environment is i."""

    tables: Mapping[str, ndarray]
    report: Report = field(default_factory=Report)

    def __getattr__(self, name: str) -> ndarray:
        if name in ("tables", "__setstate__") or name not in self.tables:
            raise AttributeError(name)
        return self.tables[name]

    @property
    def acting(self) -> ndarray | None:
        """Steps (T, N) bool whose actions count, None if all do."""
        return None if self.present.all() else self.present

    @property
    def dones(self) -> ndarray:
        """Steps (T, N) that ended an episode, by termination or truncation."""
        return self.terminations | self.truncations
