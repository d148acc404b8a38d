"""Distributions against torch.distributions, golden numbers and the frequencies of their samples."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch.testing import assert_close

from models.distributions import Categorical, DiagonalGaussian, policy_head
from ppo.config import Config

SAMPLES = 100_000
SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 5))
PLAIN = Config(log_std_init=0.0)


def matrices(shape, low, high):
    return arrays(np.float32, shape, elements=st.floats(low, high, width=32)).map(torch.from_numpy)


@settings(deadline=None)
@given(st.data(), SHAPES)
def test_categorical_equals_torch(data, shape):
    logits = data.draw(matrices(shape, -30, 30))
    actions = torch.from_numpy(data.draw(arrays(np.int64, shape[0], elements=st.integers(0, shape[1] - 1))))
    ours, theirs = Categorical(logits.unsqueeze(1)), torch.distributions.Categorical(logits=logits)
    assert_close(ours.log_prob(actions.unsqueeze(1)), theirs.log_prob(actions), rtol=1e-5, atol=1e-5)
    assert_close(ours.entropy(), theirs.entropy(), rtol=1e-5, atol=1e-5)
    assert_close(ours.mode(), logits.argmax(-1, keepdim=True))


@settings(deadline=None)
@given(st.data(), SHAPES)
def test_diagonal_gaussian_equals_torch(data, shape):
    mean, actions, log_std = (data.draw(matrices(size, -3, 3)) for size in (shape, shape, shape[1]))
    ours = DiagonalGaussian(mean, log_std)
    theirs = torch.distributions.Independent(torch.distributions.Normal(mean, log_std.exp()), 1)
    assert_close(ours.log_prob(actions), theirs.log_prob(actions), rtol=1e-5, atol=1e-5)
    assert_close(ours.entropy(), theirs.entropy(), rtol=1e-5, atol=1e-5)
    assert_close(ours.mode(), mean)


def test_golden_categorical():
    logits = torch.tensor([2.0, 0.0, -1.0], dtype=torch.float64)
    distribution = Categorical(logits.expand(3, 1, 3))
    log_probs = distribution.log_prob(torch.arange(3).unsqueeze(1)).numpy()
    assert log_probs == pytest.approx([-0.169846, -2.169846, -3.169846], abs=6e-7)
    assert distribution.entropy().numpy() == pytest.approx(3 * [0.5242666], abs=6e-8)


def test_golden_diagonal_gaussian():
    mean, log_std, action = torch.tensor([[0.5, -1], [0, -0.5], [1, -2]], dtype=torch.float64)
    distribution = DiagonalGaussian(mean, log_std)
    assert distribution.log_prob(action).item() == pytest.approx(-2.8220180, abs=6e-8)
    assert distribution.entropy().item() == pytest.approx(2.3378771, abs=6e-8)


def test_categorical_samples_have_the_probabilities_of_the_logits():
    logits = torch.tensor([2.0, 0.0, -1.0])
    noise = policy_head(1, spaces.Discrete(3), PLAIN).draw_noise(np.random.default_rng(0), SAMPLES)
    samples = Categorical(logits.expand(SAMPLES, 1, 3)).sample(torch.from_numpy(noise))
    counts = samples.squeeze(1).bincount(minlength=3)
    expected = SAMPLES * logits.exp() / logits.exp().sum()
    assert ((counts - expected).square() / expected).sum() < 13.8  # chi-square, 2 degrees of freedom, p = 0.001


def test_gaussian_samples_have_the_mean_and_deviation_and_no_correlation():
    mean, log_std = torch.tensor([3.0, -1.0]), torch.tensor([0.5, -2.0])
    noise = policy_head(1, spaces.Box(-1, 1, (2,)), PLAIN).draw_noise(np.random.default_rng(0), SAMPLES)
    samples = DiagonalGaussian(mean, log_std).sample(torch.from_numpy(noise))
    standard_error = log_std.exp() / SAMPLES**0.5
    assert ((samples.mean(0) - mean).abs() < 4 * standard_error).all()
    assert ((samples.std(0) - log_std.exp()).abs() < 4 * standard_error).all()
    assert samples.T.corrcoef()[0, 1].abs() < 4 / SAMPLES**0.5


def test_extreme_logits_stay_finite():
    logits = torch.tensor([[[100.0, -100.0]], [[-100.0, 100.0]]], requires_grad=True)
    distribution = Categorical(logits)
    log_probs, entropy = distribution.log_prob(torch.tensor([[1], [1]])), distribution.entropy()
    (log_probs.sum() + entropy.sum()).backward()
    assert log_probs.tolist() == [-200, 0]
    assert entropy.tolist() == [0, 0]
    assert logits.grad.isfinite().all()


def test_gaussian_head_flattens_its_box():
    head = policy_head(4, spaces.Box(-1, 1, (2, 3)), PLAIN)
    distribution = head(torch.zeros(5, 4))
    assert distribution.mode().shape == (5, 6)
    assert distribution.entropy().shape == distribution.log_prob(torch.zeros(5, 6)).shape == (5,)
    assert head.draw_noise(np.random.default_rng(0), 7).shape == (7, 6)


def test_log_std_is_learned_from_zero_and_the_same_for_all_features():
    head = policy_head(4, spaces.Box(-1, 1, (2,)), PLAIN)
    head(torch.randn(5, 4)).log_prob(torch.ones(5, 2)).sum().backward()
    assert head.log_std.tolist() == [0, 0]
    assert (head.log_std.grad != 0).all()
    assert_close(head(torch.zeros(1, 4)).log_std, head(torch.ones(1, 4)).log_std)


def test_categorical_head_has_a_logit_for_each_choice():
    head = policy_head(4, spaces.Discrete(3, start=10), PLAIN)
    assert head(torch.zeros(5, 4)).logits.shape == (5, 1, 3)
    assert head(torch.zeros(5, 4)).entropy().shape == (5,)
    assert head.draw_noise(np.random.default_rng(0), 7).shape == (7, 3)


class Zeros:
    """A generator whose every draw is exactly 0."""

    def __getattr__(self, name):
        return lambda size, dtype=np.float64: np.zeros(size, dtype)


@pytest.mark.parametrize("generator", [Zeros(), np.random.default_rng(0)], ids=["zeros", "random"])
@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.Box(-1, 1, (3,))], ids=["choices", "numbers"])
def test_noise_is_finite_float32(space, generator):
    noise = policy_head(1, space, PLAIN).draw_noise(generator, 1000)
    assert noise.dtype == np.float32
    assert np.isfinite(noise).all()
