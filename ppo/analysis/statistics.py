"""How sure one can be of a mean: bootstrap intervals."""

from collections.abc import Callable
from typing import Any

import numpy as np

RESAMPLES = 2_000


def interquartile_mean(values: Any) -> Any:
    """The mean of the middle half of values (n, ...), over the first axis (Agarwal et al. 2021, section 4.3): less
    swayed by single runs than the mean, less wasteful than the median."""
    ordered = np.sort(values, axis=0)
    cut = len(ordered) // 4
    return ordered[cut : len(ordered) - cut].mean(axis=0)


def mean(values: Any) -> Any:
    """The mean of values (n, ...) over the first axis."""
    return np.mean(values, axis=0)


def confidence_interval(values: Any, statistic: Callable[[Any], Any] = mean) -> Any:
    """The 95 % percentile bootstrap interval (Efron 1979) of a statistic over the first axis of independent values
    (n, ...): an array (2, ...), always the same for the same values. None for fewer than two."""
    if len(values) < 2:
        return None
    values, generator = np.asarray(values, float), np.random.default_rng(0)
    resamples = (
        values[generator.integers(len(values), size=len(values))] for _ in range(RESAMPLES)
    )
    return np.percentile([statistic(resample) for resample in resamples], (2.5, 97.5), axis=0)
