"""Memory that the learner and the workers share."""

import math
from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any

import numpy as np

from ppo.algorithm.learner import Learner
from ppo.algorithm.rollout import Rollout
from ppo.config.config import Config
from ppo.envs.probe import Spaces
from ppo.envs.shared_memory import SharedArray
from ppo.extensions import NOTHING, added_columns
from ppo.models.actor_critic import ActorCritic, named_tensors, to_vector
from ppo.system.hardware import check_memory


def rollout_layout(
    T: int, N: int, spaces: Spaces, model: ActorCritic, widths: Mapping[str, int] = NOTHING
) -> dict[str, Any]:
    """Return shape and dtype of each table of a Rollout. widths: of further tables, by name."""
    head = model.policy_head
    mask_size = head.mask_size if spaces.has_masks else 0
    return {
        "observations": ((T + 1, N, *spaces.observations.shape), spaces.observations.dtype),
        "actions": ((T, N, head.action_size), head.action_dtype),
        "rewards": ((T, N), np.float32),
        "terminations": ((T, N), np.bool_),
        "truncations": ((T, N), np.bool_),
        "features": ((T, N, model.num_shared_features), np.float32),
        "states": ((T + 1, N, model.state_size), np.float32),
        "action_masks": ((T + 1, N, mask_size), np.bool_),
        "present": ((T + 1, N if spaces.has_absent else 0), np.bool_),
        **{name: ((T, N, width), np.float32) for name, width in widths.items()},
    }


class SharedBuffers:
    """Allocate the rollout, the behaviour policy's weights and the episode counts.

    Attributes named shared_ are for workers; the others are the same memory as numpy arrays:
    rollout, behaviour_weights (P,), episode_counts (N,): how often each environment was reset.
    Raises ConfigError if the rollout does not fit into memory.
    """

    def __init__(self, config: Config, spaces: Spaces, learner: Learner, num_envs: int) -> None:
        widths = {
            name: resolve_name(column.width)(config)
            for name, column in added_columns(config).items()
        }
        layout = rollout_layout(config.num_steps, num_envs, spaces, learner.model, widths)
        num_bytes = sum(math.prod(shape) * np.dtype(x).itemsize for shape, x in layout.values())
        check_memory("num_envs or --num_steps", num_bytes)
        self.shared_rollout = {
            name: SharedArray(shape, dtype) for name, (shape, dtype) in layout.items()
        }
        self.rollout = Rollout(**{name: x.array for name, x in self.shared_rollout.items()})
        tensors = named_tensors(learner.model).values()
        self.shared_weights = SharedArray(to_vector(tensors).shape, np.float32)
        self.behaviour_weights = self.shared_weights.array
        self.shared_counts = SharedArray((num_envs,), np.int64)
        self.episode_counts = self.shared_counts.array
        self.episode_counts_at_rollout_end = self.episode_counts.copy()
