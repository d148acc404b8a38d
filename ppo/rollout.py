"""The rollout: T steps of N environments, time-major."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

Batch = dict[str, Tensor]  # by name, (T * N, ...): a row for each transition


@dataclass(frozen=True)
class Rollout:
    """The tensors that workers write, as numpy arrays in shared memory.

    Row t + 1 of the observations is what action t led to, or the next episode's first observation if it
    ended one. Row T is row 0 of the next rollout.
    """

    observations: np.ndarray  # (T + 1, N, *observation), of the space's own dtype
    actions: np.ndarray  # (T, N) int64; for a Box (T, N, D) float32, flat and not yet clipped
    rewards: np.ndarray  # (T, N) float32, the environment's own
    terminations: np.ndarray  # (T, N) bool
    truncations: np.ndarray  # (T, N) bool; where both, only terminated
    features: np.ndarray | None = None  # (T, N, F) float32, of the observations, where policy and value share them

    @staticmethod
    def layout(
        num_steps: int, num_envs: int, num_features: int, observation_space: Any, action_space: Any
    ) -> dict[str, tuple]:
        """Shape and dtype of each tensor, by name. num_features: how many workers record, none if 0."""
        T, N = num_steps, num_envs
        discrete = isinstance(action_space, spaces.Discrete)
        features = {"features": ((T, N, num_features), np.float32)} if num_features else {}
        return {
            **features,
            "observations": ((T + 1, N, *observation_space.shape), observation_space.dtype),
            "actions": ((T, N), np.int64) if discrete else ((T, N, math.prod(action_space.shape)), np.float32),
            "rewards": ((T, N), np.float32),
            "terminations": ((T, N), np.bool_),
            "truncations": ((T, N), np.bool_),
        }


def minibatches(batch: Batch, num_epochs: int, num_minibatches: int, seed: int) -> Iterator[Batch]:
    """Each epoch splits the batch anew at random: every row is in one minibatch; sizes differ by one at most."""
    observations = batch["observations"]
    generator = torch.Generator().manual_seed(seed)
    for _ in range(num_epochs):
        order = torch.randperm(len(observations), generator=generator).to(observations.device)
        for rows in order.tensor_split(num_minibatches):
            yield {name: tensor.index_select(0, rows) for name, tensor in batch.items()}
