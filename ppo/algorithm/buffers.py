"""Memory that the learner and the workers share."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy import ndarray

from ppo.algorithm.rollout import Rollout
from ppo.config.config import Config
from ppo.envs.make import Spaces
from ppo.envs.shared import SharedArray
from ppo.system.hardware import check_memory
from ppo.system.state_dict import add_prefix, select_prefix

NEXT = ("observations", "states", "action_masks")  # tables whose last row begins the next rollout


class SharedBuffers:
    """Allocate the rollout, the behaviour policy's weights and the episode counts.

    Attributes named shared_ are for workers; the others are the same memory as numpy arrays:
    rollouts (two of them if one is collected while the other is learned from), behaviour_weights
    (P,), episode_counts (N,): how often each environment was reset. Raises ConfigError if the
    rollouts do not fit into memory.
    """

    def __init__(
        self, config: Config, spaces: Spaces, *, num_envs: int, model: Any, num_weights: int
    ) -> None:
        layout = Rollout.layout(
            num_steps=config.num_steps,
            num_envs=num_envs,
            observation_space=spaces.observations,
            model=model,
            has_action_masks=spaces.has_masks,
        )
        num_rollouts = 2 if config.overlap else 1
        num_bytes = sum(math.prod(shape) * np.dtype(x).itemsize for shape, x in layout.values())
        check_memory("num_envs or --num_steps", num_bytes * num_rollouts)
        self.shared_rollouts = [
            {name: SharedArray(shape, dtype) for name, (shape, dtype) in layout.items()}
            for _ in range(num_rollouts)
        ]
        self.rollouts = [
            Rollout(**{name: table.array for name, table in tables.items()})
            for tables in self.shared_rollouts
        ]
        self.shared_weights = SharedArray((num_weights,), np.float32)
        self.behaviour_weights = self.shared_weights.array
        self.shared_counts = SharedArray((num_envs,), np.int64)
        self.episode_counts = self.shared_counts.array
        self.episode_counts_at_rollout_end = self.episode_counts.copy()

    def state_dict(self, iteration: int) -> dict[str, ndarray]:
        """Return each environment's own state after an iteration: arrays (N, ...) by name."""
        rollout = vars(self.rollouts[iteration % len(self.rollouts)])
        return {
            **add_prefix("next", {name: rollout[name][-1] for name in NEXT}),
            "episodes.begun": self.episode_counts_at_rollout_end,
        }

    def load_state_dict(self, state: Mapping[str, ndarray]) -> None:
        """Take over what state_dict() returned; other names in it are ignored."""
        for name, row in select_prefix("next", state).items():
            for rollout in self.rollouts:
                vars(rollout)[name][-1] = row
        self.episode_counts[:] = state["episodes.begun"]
        self.episode_counts_at_rollout_end[:] = state["episodes.begun"]
