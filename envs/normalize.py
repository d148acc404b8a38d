"""Normalize observations and rewards by running statistics of the whole run, which stay frozen
while a rollout is collected, and are updated once from all of it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from ppo.config import Config
from ppo.envs.observations import NUMBERS

Arrays = Mapping[str, ndarray]  # tables by name
EPSILON = 1e-8
CLIP = 10.0


class RunningMeanStd:
    """Mean and variance of all samples so far, merged batch by batch (Chan et al. 1979, eq. 2.1).
    Before the first sample: mean 0, variance 1, weight 0."""

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
        """Merge the moments of samples."""
        total = self.count + count
        delta = mean - self.mean
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
    """Standardize numbers: (x - mean) / standard deviation, clipped to +/- 10, as float32, with
    --normalize_observations. arrays: with shift and scale (*row), which workers share, float64
    where float32 would round the numbers. Only the trainer's statistics are updated."""

    def __init__(self, arrays: Arrays, config: Config) -> None:
        self.shift = arrays["shift"]
        self.scale = arrays["scale"]
        self.enabled = bool(config.normalize_observations)
        self.statistics = RunningMeanStd(self.shift.shape)

    def __call__(self, numbers: ndarray) -> ndarray:
        if not self.enabled:
            return numbers
        normalized = np.subtract(numbers, self.shift).astype(np.float32, copy=False)
        normalized *= self.scale
        np.minimum(normalized, CLIP, out=normalized)
        np.maximum(normalized, -CLIP, out=normalized)
        return normalized

    def update(self, numbers: ndarray) -> None:
        """Update the statistics from numbers (..., *row)."""
        self.statistics.update(numbers.reshape(-1, *self.shift.shape))

    def publish(self) -> None:
        """Write the statistics to the shared memory."""
        self.shift[...] = self.statistics.mean
        self.scale[...] = 1 / np.sqrt(self.statistics.variance + EPSILON)

    def tables(self, tables: Arrays) -> dict[str, ndarray]:
        """Return tables of observations, numbers normalized."""
        return {name: self(x) if name == NUMBERS else x for name, x in tables.items()}


class NormalizeReward:
    """Divide rewards, which are not centered, by the running deviation of R = gamma R + r over all
    steps (Baselines, VecNormalize); clip them to +/- 10. R restarts at 0 when an episode ends."""

    def __init__(self, num_envs: int, gamma: float) -> None:
        self.statistics = RunningMeanStd()
        self.returns = np.zeros(num_envs)
        self.gamma = gamma

    def update_and_scale(self, rewards: ndarray, dones: ndarray, acting: Any = None) -> ndarray:
        """Update the statistics from rewards (T, N), of some steps (T, N) or of all, and return the
        rewards scaled, float32."""
        discounted = np.empty(rewards.shape)
        for t, done in enumerate(dones):
            discounted[t] = self.returns * self.gamma + rewards[t]
            self.returns = discounted[t] * ~done
        self.statistics.update(discounted.ravel() if acting is None else discounted[acting])
        scaled = rewards / np.sqrt(self.statistics.variance + EPSILON)
        return np.clip(scaled, -CLIP, CLIP).astype(np.float32)

    def restart(self, environments: Sequence[int]) -> None:
        """Begin episodes in some environments."""
        self.returns[environments] = 0

    def state_dict(self) -> dict[str, Any]:
        return {**self.statistics.state_dict(), "returns": self.returns}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.statistics.load_state_dict(state)
        self.returns = np.array(state["returns"])
