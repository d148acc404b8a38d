"""Exploration that depends on the state (gSDE) against the formulas of its paper."""

import itertools
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.testing import assert_close

from ppo.extras.exploration.gsde import draw_held
from tests.models.test_distributions import SAMPLES, noise_for, random_features, random_head
from tests.models.test_noise import assert_rows_are_steps


def explored(count=50, **options):
    """Return a head with gSDE, features (count, 4), and its distribution of three numbers."""
    head = random_head(spaces.Box(-5, 5, (3,)), 4, use_sde=True, **options)
    features = random_features(count, 4)
    return head, features, head(features)


@pytest.mark.parametrize("squash", [False, True])
def test_state_dependent_exploration_has_the_density_of_its_formula(squash):
    head, features, ours = explored(squash_actions=squash)
    assert head.log_std.shape == (4, 3)
    sigma, variance = head.log_std.exp(), torch.zeros(50, 3).double()
    for i, j in itertools.product(range(4), range(3)):
        variance[:, j] += features[:, i] ** 2 * sigma[i, j] ** 2
    normal = torch.distributions.Normal(head.mean(features), (variance + 1e-6).sqrt())
    actions = 0.5 * random_features(50, 3)
    log_probs, entropy = normal.log_prob(actions), normal.entropy()
    if squash:
        log_probs = log_probs - torch.log1p(-actions.tanh().square())
    assert_close(ours.log_prob(actions), log_probs.sum(-1), rtol=1e-5, atol=1e-5)
    assert ours.log_prob(actions).shape == ours.entropy().shape == (50,)
    assert_close(ours.mode(), head.mean(features))
    if not squash:
        assert_close(ours.entropy(), entropy.sum(-1), rtol=1e-5, atol=1e-5)


def test_state_dependent_exploration_is_a_linear_function_of_features():
    head, features, ours = explored()
    noise = noise_for(head, 1)
    matrix = noise.view(4, 3) * head.log_std.exp()
    assert_close(ours.sample(noise.expand(50, -1)), head.mean(features) + features @ matrix)
    again = head(features[:1]).sample(noise)
    assert (again == head(features[:1]).sample(noise)).all()
    assert_close(again, ours.sample(noise.expand(50, -1))[:1])
    nothing = head(torch.zeros(1, 4).double())
    assert_close(nothing.sample(noise), nothing.mode())


def test_state_dependent_exploration_varies_as_its_density_says():
    head, features, _ = explored(sde_sample_freq=1)
    samples = head(features[:1].expand(SAMPLES, -1)).sample(noise_for(head, SAMPLES))
    deviation = (features[:1].square() @ head.log_std.exp().square()).sqrt()[0]
    assert ((samples.std(0) / deviation - 1).abs() < 4 / (2 * SAMPLES) ** 0.5).all()
    assert ((samples.mean(0) - head.mean(features[0])).abs() < 4 * deviation / SAMPLES**0.5).all()
    assert (torch.triu(samples.T.corrcoef(), 1).abs() < 4 / SAMPLES**0.5).all()


@pytest.mark.parametrize(("every", "changes"), [(1, range(1, 10)), (4, [4, 8]), (10, []), (-1, [])])
def test_exploration_stays_for_as_many_steps_as_asked_for(every, changes):
    head = random_head(spaces.Box(-1, 1, (3,)), 4, use_sde=True, sde_sample_freq=every)
    noise = head.draw_noise(np.random.default_rng(0), 10)
    assert noise.shape == (10, 4 * 3)
    assert noise.dtype == np.float32
    assert [t for t in range(1, 10) if (noise[t] != noise[t - 1]).all()] == list(changes)
    assert (head.draw_noise(np.random.default_rng(1), 10) != noise).any()


def test_the_deviation_does_not_teach_the_features():
    """Log-probabilities have a gradient by features through the mean only.

    Raffin et al. 2021, appendix."""
    head, features, _ = explored(5)
    features.requires_grad_()
    head(features).log_prob(torch.ones(5, 3).double()).sum().backward()
    variance = (features.detach().square() @ head.log_std.exp().square()) + 1e-6
    expected = ((1 - head.mean(features.detach())) / variance) @ head.mean.weight
    assert_close(features.grad, expected)


@pytest.mark.parametrize("sample_freq", [0, 4])
def test_noise_of_many_rows_is_that_of_single_steps(sample_freq: int) -> None:
    assert_rows_are_steps(partial(draw_held, size=3, sample_freq=sample_freq))
