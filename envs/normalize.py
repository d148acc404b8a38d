"""Normalise observations and rewards by running statistics, one set for the whole run.

Statistics stay frozen while a rollout is collected and are updated once from all of it. Where
normalisation is turned off, both classes return what they are given."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy import ndarray

from ppo.envs.shared_memory import SharedArray
from ppo.system.state_dict import State

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

Auto = Literal["auto"]  # what a setting may be until a run resolves it
EPSILON = 1e-8
CLIP = 10.0
KEPT = 1e15  # samples that outweigh any further ones
Gather = Callable[[Any], list[Any]]  # see ppo.peers.Peers.gather


class RunningMeanStd:
    """Mean and variance of all samples so far, merged batch by batch (Chan et al. 1979, eq. 2.1).

    Mean 0 and variance 1 stand for no samples, and have no weight: even the 1e-4 samples that
    Baselines begins with would be all of the variance of numbers far from 0. Its attributes are its
    state."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.mean = np.zeros(shape)
        self.variance = np.ones(shape)
        self.count = np.float64(0)

    @np.errstate(all="ignore")  # checkpoints refuse statistics that are not finite
    def update(self, samples: ndarray, gather: Gather) -> None:
        """Merge samples (count, *shape) of this process and, by gather, of all others."""
        mean = samples.mean(axis=0, dtype=np.float64)
        variance = samples.var(axis=0, dtype=np.float64)
        for moments in gather((len(samples), mean, variance)):
            self._merge(*moments)

    def _merge(self, count: int, mean: ndarray, variance: ndarray) -> None:
        total = self.count + count
        delta = mean - self.mean
        squares = self.variance * self.count + variance * count
        self.variance = (squares + delta**2 * self.count * count / total) / total
        self.mean = self.mean + delta * count / total
        self.count = total

    def load_state_dict(self, state: State) -> None:
        self.mean = state["mean"]
        self.variance = state["variance"]
        self.count = state["count"]


class NormalizeObservation:
    """Standardise observations: (observation - mean) / deviation, clipped to +/- 10, as float32.

    Mean and deviation are in shared memory: workers see every update made here. shape, dtype: of
    the vector to standardise; is_scaled: mask (broadcast to shape) of the entries to standardise,
    the others stay as they are; is_packed: observations are rows of bytes that begin with that
    vector. The mean is subtracted in float64 from numbers that float32 would round."""

    def __init__(
        self,
        shape: Sequence[int],
        enabled: bool | Auto,
        is_scaled: ndarray | bool = True,
        is_packed: bool = False,
        dtype: "DTypeLike" = np.float32,
    ) -> None:
        self.enabled = enabled
        self.is_packed = is_packed
        self.statistics = RunningMeanStd(shape)
        self.shifts = SharedArray(shape, np.result_type(dtype, np.float32))
        self.tables = SharedArray((2, *shape), np.float32)
        scale, highest = self.tables.array
        scale[:] = 1
        highest[:] = np.where(is_scaled, CLIP, np.inf)
        self._attach()

    def __getstate__(self) -> tuple[Any, ...]:
        return self.shifts, self.tables, self.enabled, self.is_packed, self.statistics

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.shifts, self.tables, self.enabled, self.is_packed, self.statistics = state
        self._attach()

    def _attach(self) -> None:
        """Show the shared memory as arrays."""
        self.shift = self.shifts.array
        self.scale, self.highest = self.tables.array
        self.lowest = -self.highest
        self.is_held = False  # whether the statistics stand still

    def __call__(self, observations: ndarray) -> ndarray:
        """Return observations (..., *observation), normalised."""
        if not self.enabled:
            return observations
        normalized = np.subtract(self._numbers(observations), self.shift)
        normalized = normalized.astype(np.float32, copy=False)
        normalized *= self.scale
        np.minimum(normalized, self.highest, out=normalized)
        np.maximum(normalized, self.lowest, out=normalized)
        if not self.is_packed:
            return normalized
        rows = observations.copy()
        self._numbers(rows)[:] = normalized
        return rows

    def update(self, observations: ndarray, gather: Gather) -> None:
        """Update the statistics from observations (..., *observation), in all processes."""
        if self.enabled and not self.is_held:
            samples = self._numbers(observations).reshape(-1, *self.shift.shape)
            self.statistics.update(samples, gather)
            self._share_statistics()

    def keep(self, observations: ndarray, gather: Gather) -> None:
        """Update the statistics from observations (N, *observation), and give them such a weight
        that they do not change any more. Numbers that are the same in all rows are only shifted."""
        if self.enabled:
            self.update(observations, gather)
            is_same = np.ptp(self._numbers(observations), axis=0) < EPSILON
            self.statistics.variance[is_same] = 1
            self.statistics.count = np.float64(KEPT)
            self._share_statistics()

    def load_state_dict(self, state: State) -> None:
        self.statistics.load_state_dict(state)
        self._share_statistics()

    def _numbers(self, rows: ndarray) -> ndarray:
        """Return the vector to standardise: of packed rows, a view (..., n)."""
        if not self.is_packed:
            return rows
        return rows[..., : self.shift.nbytes].view(self.shift.dtype)

    def _share_statistics(self) -> None:
        is_scaled = np.isfinite(self.highest)
        scale = 1 / np.sqrt(self.statistics.variance + EPSILON)
        np.copyto(self.shift, self.statistics.mean, where=is_scaled)
        np.copyto(self.scale, scale, where=is_scaled)


class NormalizeReward:
    """Divide rewards by the running deviation of the discounted return; clip them to +/- 10.

    Rewards are not centred, and the deviation is that of R = gamma R + r over all steps (Baselines,
    VecNormalize). R restarts at 0 after every termination and truncation."""

    def __init__(self, num_envs: int, gamma: float, enabled: bool | Auto) -> None:
        self.statistics = RunningMeanStd(())
        self.returns = np.zeros(num_envs)
        self.gamma = gamma
        self.enabled = enabled

    def update_and_scale(
        self,
        rewards: ndarray,
        dones: ndarray,
        gather: Gather,
        present: ndarray | None = None,
    ) -> ndarray:
        """Update the statistics from rewards (T, N), and return the rewards scaled, float32.

        present: (T, N), the steps that count; others have no reward. None: all of them."""
        if not self.enabled:
            return rewards
        discounted = np.empty(rewards.shape)
        for t, continues in enumerate(~dones):
            discounted[t] = self.returns * self.gamma + rewards[t]
            self.returns = discounted[t] * continues
        samples = discounted.reshape(-1) if present is None else discounted[present]
        self.statistics.update(samples, gather)
        scaled = rewards / np.sqrt(self.statistics.variance + EPSILON)
        return np.clip(scaled, -CLIP, CLIP).astype(np.float32)
