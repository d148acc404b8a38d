"""The noise that actions are sampled by: its distribution, its dtype and how long it lasts."""

from functools import partial

import numpy as np
import pytest

from ppo.models.noise import draw_gumbel, draw_normal, draw_rows


def test_gumbel_noise_has_the_moments_of_a_standard_gumbel() -> None:
    noise = draw_gumbel(np.random.default_rng(0), 100_000, 1).astype(np.float64)
    error = 4 / len(noise) ** 0.5
    assert abs(noise.mean() - np.euler_gamma) < error * np.pi / 6**0.5
    assert abs(noise.var() - np.pi**2 / 6) < error * np.pi**2 / 6 * 4.4**0.5  # kurtosis 5.4


def test_normal_noise_has_the_moments_of_a_standard_normal() -> None:
    noise = draw_normal(np.random.default_rng(0), 100_000, 1).astype(np.float64)
    error = 4 / len(noise) ** 0.5
    assert abs(noise.mean()) < error
    assert abs(noise.var() - 1) < error * 2**0.5


class Zeros:
    """A generator whose every draw is 0."""

    def __getattr__(self, name):
        return lambda size, dtype=np.float64: np.zeros(size, dtype)


@pytest.mark.parametrize("draw", [draw_gumbel, draw_normal])
def test_noise_of_zeros_is_finite_float32(draw) -> None:
    noise = draw(Zeros(), 5, 3)
    assert noise.shape == (5, 3)
    assert noise.dtype == np.float32
    assert np.isfinite(noise).all()


@pytest.mark.parametrize("draw", [draw_gumbel, draw_normal])
def test_noise_of_many_rows_is_that_of_single_steps(draw) -> None:
    assert_rows_are_steps(partial(draw, size=3))


def assert_rows_are_steps(draw) -> None:
    for seed in range(20):
        one, many = (np.random.default_rng(seed) for _ in range(2))
        expected = np.vstack([draw(one, 1) for _ in range(101)])
        np.testing.assert_array_equal(draw_rows(draw, many, 101), expected)
        assert one.bit_generator.state == many.bit_generator.state
