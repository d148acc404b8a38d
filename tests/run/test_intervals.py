"""Statistics against their definitions."""

from functools import partial

import numpy as np
import pytest
from scipy import stats

from ppo.run.intervals import confidence_interval, interquartile_mean

VALUES = np.random.default_rng(0).normal(3, 2, (41, 5))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 41])
def test_the_interquartile_mean_is_that_of_rliable(count: int) -> None:
    """Which is scipy's trimmed mean (rliable.metrics.aggregate_iqm)."""
    expected = stats.trim_mean(VALUES[:count], 0.25, axis=0)
    np.testing.assert_allclose(interquartile_mean(VALUES[:count]), expected, rtol=1e-12)


@pytest.mark.parametrize("statistic", [np.mean, interquartile_mean])
def test_the_interval_is_that_of_scipy(statistic) -> None:
    low, high = confidence_interval(VALUES[:, 0], statistic)
    options = {
        "n_resamples": 20_000,
        "method": "percentile",
        "vectorized": False,
        "rng": np.random.default_rng(1),
    }
    expected = stats.bootstrap((VALUES[:, 0],), statistic, **options).confidence_interval
    width = expected.high - expected.low
    assert low == pytest.approx(expected.low, abs=0.05 * width)
    assert high == pytest.approx(expected.high, abs=0.05 * width)


def test_the_interval_of_the_mean_covers_it_as_often_as_it_says() -> None:
    generator = np.random.default_rng(2)
    samples = generator.normal(0, 1, (50, 300))
    low, high = confidence_interval(samples, partial(np.mean, axis=0))
    assert 0.90 < np.mean((low < 0) & (high > 0)) < 0.98


def test_intervals_repeat_themselves_and_need_two_values() -> None:
    first, second = (confidence_interval(VALUES, interquartile_mean) for _ in range(2))
    assert (first == second).all()
    assert first.shape == (2, 5)
    assert confidence_interval([1.0], np.mean) is None
    assert confidence_interval([], np.mean) is None
    assert confidence_interval([2.0, 2.0], np.mean).tolist() == [2, 2]
