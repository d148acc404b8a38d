"""The rollout: T steps of N environments, time-major, in memory shared with workers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy import ndarray

from ppo.envs.make import Spaces
from ppo.envs.shared_memory import SharedArray
from ppo.envs.worker import Report, table_shapes
from ppo.errors import ConfigError

Batch = dict[str, Any]  # tables (T * N, ...) by name: tensors on the learner's device
Metrics = dict[str, Any]


@dataclass
class Rollout:
    """One rollout, as tables of numpy arrays by name. Row t + 1 is what action t led to, or the
    first observation of the next episode; tables with a row T begin the next rollout with it.

    observations: (T + 1, N, *observation), images.NAME likewise; actions: (T, N, D), the policy's
    own, neither squashed nor clipped; rewards: (T, N), the environment's own; terminations,
    truncations: (T, N) bool; features: (T, N, F), of a trunk that policy and value share; states:
    (T + 1, N, S), of a recurrent network; action_masks: (T + 1, N, M) bool, allowed choices. A
    table that a run does not need has no columns. Shared as well: weights (P,), by which workers
    act; shift and scale, of observations; counts (N,), of resets. report: what workers report
    besides the tables."""

    tables: Mapping[str, ndarray]
    report: Report = field(default_factory=Report)

    def __getattr__(self, name: str) -> ndarray:
        if name in ("tables", "__setstate__") or name not in self.tables:
            raise AttributeError(name)
        return self.tables[name]

    @property
    def dones(self) -> ndarray:
        """Steps (T, N) that ended an episode, by termination or truncation."""
        return self.terminations | self.truncations


def share_memory(spaces: Spaces, model: Any, num_weights: int) -> dict[str, SharedArray]:
    """Allocate what a run shares with its workers. Raises ConfigError if memory does not
    suffice."""
    config = spaces.config
    shapes = table_shapes(
        spaces,
        config.num_steps,
        config.num_envs,
        state_size=model.state_size,
        num_features=model.num_shared_features,
    )
    shapes["weights"] = ((num_weights,), np.float32)
    try:
        return {name: SharedArray(*about) for name, about in shapes.items()}
    except (OSError, MemoryError, OverflowError, ValueError) as error:
        raise ConfigError(
            f"a rollout of --num_envs={config.num_envs} and --num_steps={config.num_steps} does "
            "not fit into memory: give less"
        ) from error
