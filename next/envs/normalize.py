"""Normalise observations and rewards by running statistics of the whole run, which stay frozen
while a rollout is collected, and are updated once from all of it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy import ndarray

EPSILON = 1e-8
CLIP = 10.0


class RunningMeanStd:
    """Mean and variance of all samples so far, merged batch by batch (Chan et al. 1979, eq. 2.1);
    without samples 0 and 1, with no weight."""

    def __init__(self, shape: Sequence[int] = ()) -> None:
        self.mean = np.zeros(shape)
        self.variance = np.ones(shape)
        self.count = np.float64(0)

    def update(self, samples: ndarray) -> None:
        """Merge samples (count, *shape)."""
        count = len(samples)
        variance = samples.var(axis=0, dtype=np.float64)
        total = self.count + count
        delta = samples.mean(axis=0, dtype=np.float64) - self.mean
        squares = self.variance * self.count + variance * count
        self.variance = (squares + delta**2 * self.count * count / total) / total
        self.mean = self.mean + delta * count / total
        self.count = total

    def state_dict(self) -> dict[str, Any]:
        return {**vars(self)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.mean = np.array(state["mean"])
        self.variance = np.array(state["variance"])
        self.count = np.float64(state["count"])


class NormalizeObservation:
    """Standardise numbers: (x - mean) / standard deviation, clipped to +/- 10, as float32; if not
    enabled, leave them as they are. shift, scale (*row): memory shared with workers, float64 where
    float32 would round the numbers; only the trainer has the statistics too."""

    def __init__(self, shift: ndarray, scale: ndarray, enabled: bool) -> None:
        self.shift = shift
        self.scale = scale
        self.enabled = enabled
        self.statistics = RunningMeanStd(shift.shape)

    def __call__(self, numbers: ndarray) -> ndarray:
        if not self.enabled:
            return numbers
        normalized = np.subtract(numbers, self.shift).astype(np.float32, copy=False)
        normalized *= self.scale
        np.minimum(normalized, CLIP, out=normalized)
        np.maximum(normalized, -CLIP, out=normalized)
        return normalized

    def update(self, numbers: ndarray) -> None:
        """Update the statistics from numbers (..., *row), and publish them to workers."""
        if self.enabled:
            self.statistics.update(numbers.reshape(-1, *self.shift.shape))
            self.publish()

    def publish(self) -> None:
        """Write the statistics to the shared memory."""
        self.shift[...] = self.statistics.mean
        self.scale[...] = 1 / np.sqrt(self.statistics.variance + EPSILON)


class NormalizeReward:
    """Divide rewards, which are not centred, by the running deviation of R = gamma R + r over all
    steps (Baselines, VecNormalize); clip them to +/- 10. R restarts at 0 when an episode ends."""

    def __init__(self, num_envs: int, gamma: float) -> None:
        self.statistics = RunningMeanStd()
        self.returns = np.zeros(num_envs)
        self.gamma = gamma

    def update_and_scale(self, rewards: ndarray, dones: ndarray) -> ndarray:
        """Update the statistics from rewards (T, N), and return the rewards scaled, float32."""
        discounted = np.empty(rewards.shape)
        for t, done in enumerate(dones):
            discounted[t] = self.returns * self.gamma + rewards[t]
            self.returns = discounted[t] * ~done
        self.statistics.update(discounted.ravel())
        scaled = rewards / np.sqrt(self.statistics.variance + EPSILON)
        return np.clip(scaled, -CLIP, CLIP).astype(np.float32)

    def state_dict(self) -> dict[str, Any]:
        return {**self.statistics.state_dict(), "returns": self.returns}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.statistics.load_state_dict(state)
        self.returns = np.array(state["returns"])
