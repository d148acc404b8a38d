"""Running normalisation of the stream of rollouts, with one set of statistics for the whole run: frozen while a rollout
is collected, they take in all of it at once afterwards. Turned off, both classes return what they are given."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ppo.envs.shared import SharedArray

EPSILON = 1e-8
CLIP = 10.0
Moments = tuple[float, Any, Any]  # number, mean and variance of some samples
Pool = Callable[[Moments], Moments]


def only_here(moments: Moments) -> Moments:
    """As there are no other samples than those here."""
    return moments


class RunningMeanStd:
    """Mean and variance of all samples so far, merged batch by batch (Chan et al. 1979, eq. 2.1), after a prior of
    1e-4 samples of mean 0 and variance 1 (Baselines)."""

    def __init__(self, shape: Sequence[int] = ()) -> None:
        self.mean, self.variance, self.count = np.zeros(shape), np.ones(shape), np.float64(1e-4)

    def update(self, samples: np.ndarray, pool: Pool = only_here) -> None:
        """samples: (count, *shape). pool: from the number, mean and variance of samples here to those of all, if there
        are others elsewhere."""
        moments = (
            len(samples),
            samples.mean(axis=0, dtype=np.float64),
            samples.var(axis=0, dtype=np.float64),
        )
        count, mean, variance = pool(moments)
        total = self.count + count
        delta = mean - self.mean
        squares = self.variance * self.count + variance * count
        self.variance = (squares + delta**2 * self.count * count / total) / total
        self.mean = self.mean + delta * count / total
        self.count = total


class NormalizeObservation:
    """(observation - mean) / deviation, clipped to +/- 10, as float32. Mean and deviation lie in shared memory: a copy
    sent to another process follows this one's updates. num_pixels: as many numbers at the start of observations (n,)
    stay as they are."""

    def __init__(self, shape: Sequence[int], enabled: bool = True, num_pixels: int = 0) -> None:
        self.statistics = RunningMeanStd(shape)
        applied = SharedArray((3, *shape), np.float32)
        applied.array[1:] = np.reshape((1, CLIP), (2, *[1] * len(shape)))
        applied.array[2, :num_pixels] = np.inf
        self.__setstate__((applied, enabled))

    def __getstate__(self) -> tuple[SharedArray, bool]:
        return self.applied, self.enabled

    def __setstate__(self, state: tuple[SharedArray, bool]) -> None:
        self.applied, self.enabled = state
        self.shift, self.scale, self.highest = self.applied.array
        self.lowest = -self.highest

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """observations and result: (..., *observation)."""
        if not self.enabled:
            return observations
        normalized = np.subtract(observations, self.shift, dtype=np.float32)
        normalized *= self.scale
        np.minimum(normalized, self.highest, out=normalized)
        return np.maximum(normalized, self.lowest, out=normalized)

    def update(self, observations: np.ndarray, pool: Pool = only_here) -> None:
        """observations: (T, N, *observation). From now on they count, in every process. pool: as RunningMeanStd has
        it."""
        if self.enabled:
            self.statistics.update(observations.reshape(-1, *self.shift.shape), pool)
            self.restore(vars(self.statistics))

    def restore(self, statistics: Mapping[str, np.ndarray]) -> None:
        """Go on from statistics, those of RunningMeanStd by name."""
        vars(self.statistics).update(statistics)
        is_scaled = np.isfinite(self.highest)
        np.copyto(self.shift, self.statistics.mean, where=is_scaled, casting="same_kind")
        np.copyto(
            self.scale,
            1 / np.sqrt(self.statistics.variance + EPSILON),
            where=is_scaled,
            casting="same_kind",
        )


class NormalizeReward:
    """Rewards divided by the running deviation of the discounted return, clipped to +/- 10; not centred (Baselines). An
    environment's discounted return starts anew with every episode, however the last one ended."""

    def __init__(self, num_envs: int, gamma: float, enabled: bool = True) -> None:
        self.statistics, self.returns = RunningMeanStd(), np.zeros(num_envs)
        self.gamma, self.enabled = gamma, enabled

    def __call__(
        self, rewards: np.ndarray, dones: np.ndarray, pool: Pool = only_here
    ) -> np.ndarray:
        """rewards, dones: (T, N). Takes the rollout in, then scales it; returns (T, N) float32. pool: as RunningMeanStd
        has it."""
        if not self.enabled:
            return rewards
        discounted = np.empty(rewards.shape)
        for t, continues in enumerate(~dones):
            discounted[t] = self.returns * self.gamma + rewards[t]
            self.returns = discounted[t] * continues
        self.statistics.update(discounted.reshape(-1), pool)
        scaled = rewards / np.sqrt(self.statistics.variance + EPSILON)
        return np.clip(scaled, -CLIP, CLIP).astype(np.float32)
