"""Normalise observations and rewards by running statistics, one set for the whole run.

Statistics stay frozen while a rollout is collected, and are updated once from all of it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from ppo.envs.shared_memory import SharedArray

EPSILON = 1e-8
CLIP = 10.0


class RunningMeanStd:
    """Mean and variance of all samples so far, merged batch by batch (Chan et al. 1979, eq. 2.1).

    Without samples, mean and variance are 0 and 1, and have no weight."""

    def __init__(self, shape: Sequence[int] = ()) -> None:
        self.mean = np.zeros(shape)
        self.variance = np.ones(shape)
        self.count = np.float64(0)

    def update(self, samples: ndarray) -> None:
        """Merge samples (count, *shape)."""
        mean = samples.mean(axis=0, dtype=np.float64)
        variance = samples.var(axis=0, dtype=np.float64)
        self.merge(len(samples), mean, variance)

    def merge(self, count: int, mean: ndarray, variance: ndarray) -> None:
        """Merge the moments of other samples."""
        total = self.count + count
        delta = mean - self.mean
        squares = self.variance * self.count + variance * count
        self.variance = (squares + delta**2 * self.count * count / total) / total
        self.mean = self.mean + delta * count / total
        self.count = total

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "variance": self.variance, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.mean = np.array(state["mean"])
        self.variance = np.array(state["variance"])
        self.count = np.float64(state["count"])


class NormalizeObservation:
    """Standardise numbers: (x - mean) / standard deviation, clipped to +/- 10, as float32.

    shift and scale are memory that is shared with workers. The mean is subtracted in float64 from
    numbers that float32 would round. enabled: otherwise numbers are returned as they are."""

    def __init__(self, shift: ndarray, scale: ndarray, enabled: bool) -> None:
        self.shift = shift
        self.scale = scale
        self.enabled = enabled

    def __call__(self, numbers: ndarray) -> ndarray:
        """Return numbers (..., *row), normalised."""
        if not self.enabled:
            return numbers
        normalized = np.subtract(numbers, self.shift).astype(np.float32, copy=False)
        normalized *= self.scale
        np.minimum(normalized, CLIP, out=normalized)
        np.maximum(normalized, -CLIP, out=normalized)
        return normalized


class ObservationStatistics:
    """The statistics of a NormalizeObservation, in the trainer."""

    def __init__(self, normalize: NormalizeObservation) -> None:
        self.normalize = normalize
        self.statistics = RunningMeanStd(normalize.shift.shape)
        self._publish()

    def update(self, numbers: ndarray) -> None:
        """Update the statistics from numbers (B, *row), and publish them to workers."""
        if self.normalize.enabled:
            self.statistics.update(numbers)
            self._publish()

    def _publish(self) -> None:
        if self.normalize.enabled:
            self.normalize.shift[:] = self.statistics.mean
            self.normalize.scale[:] = 1 / np.sqrt(self.statistics.variance + EPSILON)

    def state_dict(self) -> dict[str, Any]:
        return self.statistics.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.statistics.load_state_dict(state)
        self._publish()


def shared_statistics(shape: Sequence[int], dtype: Any) -> tuple[SharedArray, SharedArray]:
    """Allocate shift and scale of numbers with this shape and dtype."""
    return SharedArray(shape, np.result_type(dtype, np.float32)), SharedArray(shape, np.float32)


class NormalizeReward:
    """Divide rewards by the running deviation of the discounted return; clip them to +/- 10.

    Rewards are not centred, and the deviation is that of R = gamma R + r over all steps (Baselines,
    VecNormalize). R restarts at 0 after every termination and truncation."""

    def __init__(self, num_envs: int, gamma: float) -> None:
        self.statistics = RunningMeanStd()
        self.returns = np.zeros(num_envs)
        self.gamma = gamma

    def update_and_scale(
        self, rewards: ndarray, dones: ndarray, present: ndarray | None = None
    ) -> ndarray:
        """Update the statistics from rewards (T, N), and return the rewards scaled, float32.

        present: (T, N), the steps that count; None for all."""
        discounted = np.empty(rewards.shape)
        for t, continues in enumerate(~dones):
            discounted[t] = self.returns * self.gamma + rewards[t]
            self.returns = discounted[t] * continues
        self.statistics.update(discounted.ravel() if present is None else discounted[present])
        scaled = rewards / np.sqrt(self.statistics.variance + EPSILON)
        return np.clip(scaled, -CLIP, CLIP).astype(np.float32)

    def state_dict(self) -> dict[str, Any]:
        return {**self.statistics.state_dict(), "returns": self.returns}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.statistics.load_state_dict(state)
        self.returns = np.array(state["returns"])
