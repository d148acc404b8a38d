"""Means of several runs or episodes, and bootstrap intervals of them."""

from collections.abc import Callable
from typing import Any

import numpy as np

RESAMPLES = 2_000


def interquartile_mean(values):
    """Average the middle half of values (n, ...) over the first axis (Agarwal et al. 2021,
    section 4.3): less swayed by single runs than the mean, less wasteful than the median."""
    ordered = np.sort(values, axis=0)
    cut = len(ordered) // 4
    return ordered[cut : len(ordered) - cut].mean(axis=0)


def confidence_interval(values, statistic: Callable[[Any], Any]):
    """Return the 95 % percentile bootstrap interval (2, ...) (Efron 1979) of a statistic over the
    first axis of independent values (n, ...); None for fewer than two. Resamples are always the
    same."""
    values = np.asarray(values, float)
    count = len(values)
    if count < 2:
        return None
    generator = np.random.default_rng(0)
    resampled = [statistic(values[generator.integers(count, size=count)]) for _ in range(RESAMPLES)]
    return np.percentile(resampled, (2.5, 97.5), axis=0)
