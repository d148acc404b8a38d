"""Distributions against torch.distributions, frequencies of samples, and noise."""

import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch.testing import assert_close

from ppo.config import Config
from ppo.models.distributions import Categorical, DiagonalGaussian, policy_head

SAMPLES = 100_000
SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 5))
close = partial(assert_close, rtol=1e-5, atol=1e-5)


def matrices(shape: Any, low: float, high: float) -> Any:
    return arrays(np.float32, shape, elements=st.floats(low, high, width=32)).map(torch.from_numpy)


@given(st.data(), SHAPES)
def test_a_categorical_is_torchs(data, shape):
    logits = data.draw(matrices(shape, -30, 30))
    actions = data.draw(arrays(np.int64, shape[0], elements=st.integers(0, shape[1] - 1)))
    ours, theirs = Categorical(logits.unsqueeze(1)), torch.distributions.Categorical(logits=logits)
    actions = torch.from_numpy(actions)
    close(ours.log_prob(actions.unsqueeze(1)), theirs.log_prob(actions))
    close(ours.entropy(), theirs.entropy())
    close(ours.mode(), logits.argmax(-1, keepdim=True))


@given(st.data(), SHAPES)
def test_gaussians_are_torchs(data, shape):
    mean, noise, log_std = (
        data.draw(matrices(size, -2, 2)).double() for size in (shape, shape, shape[1])
    )
    ours = DiagonalGaussian(mean, log_std)
    normal = torch.distributions.Normal(mean, log_std.exp())
    theirs: Any = torch.distributions.Independent(normal, 1)
    actions = ours.sample(noise)
    close(actions, mean + log_std.exp() * noise)
    close(ours.log_prob(actions), theirs.log_prob(actions))
    close(ours.entropy(), theirs.entropy())
    close(ours.mode(), mean)


def random_head(space: Any, num_features: int = 3, **flags: Any) -> Any:
    """A head whose weights are as large as after long training."""
    torch.manual_seed(0)
    config = Config(**{"log_std_init": 0.0, **flags})
    head = policy_head(num_features, space, config).double().requires_grad_(False)
    for parameter in head.parameters():
        parameter.copy_(torch.randn_like(parameter))
    return head


def random_features(count: int, num_features: int = 3) -> Any:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, num_features, generator=generator, dtype=torch.float64)


def noise_for(head: Any, count: int) -> Any:
    return torch.from_numpy(head.draw_noise(np.random.default_rng(0), count)).double()


@pytest.mark.parametrize("nvec", [[3], [2, 2], [[2, 3], [4, 1]]], ids=str)
def test_choices_of_several_sizes_are_torchs(nvec):
    head, features = random_head(spaces.MultiDiscrete(nvec)), random_features(50)
    logits = head.logits(features).split(np.ravel(nvec).tolist(), -1)
    ours, theirs = head(features), [torch.distributions.Categorical(logits=x) for x in logits]
    actions = torch.stack([part.sample() for part in theirs], -1)
    log_probs = [part.log_prob(action) for part, action in zip(theirs, actions.T, strict=True)]
    close(ours.log_prob(actions), sum(log_probs))
    close(ours.entropy(), sum(part.entropy() for part in theirs))
    close(ours.mode(), torch.stack([part.argmax(-1) for part in logits], -1))


def test_forbidden_logits_have_no_gradient_and_allowed_ones_the_odds_of_torch():
    torch.manual_seed(0)
    logits: Any = torch.randn(50, 2, 4, requires_grad=True)
    mask = torch.rand(50, 2, 4) < 0.5
    mask[..., 1] = True
    masked = Categorical(logits).masked(mask.flatten(1))
    actions = masked.sample(torch.randn(50, 8))
    (masked.log_prob(actions) + 0.1 * masked.entropy()).sum().backward()
    assert (logits.grad[~mask] == 0).all()
    assert (logits.grad[mask & (mask.sum(-1, keepdim=True) > 1)] != 0).all()
    theirs = torch.distributions.Categorical(torch.where(mask, logits.exp(), 0))
    close(masked.entropy(), theirs.entropy().sum(1))
    close(masked.log_prob(actions), theirs.log_prob(actions).sum(1))


# Exploration that depends on the state (gSDE), against the formulas of Raffin et al. 2021.


def explored(count: int = 50, **flags: Any) -> tuple[Any, Any, Any]:
    """Return a head, features (count, 4), and its distribution of three numbers."""
    head = random_head(spaces.Box(-5, 5, (3,)), 4, use_sde=True, **flags)
    features = random_features(count, 4)
    return head, features, head(features)


def test_state_dependent_exploration_has_the_density_of_its_formula():
    head, features, ours = explored()
    sigma, variance = head.log_std.exp(), torch.zeros(50, 3).double()
    for i, j in itertools.product(range(4), range(3)):
        variance[:, j] += features[:, i] ** 2 * sigma[i, j] ** 2
    normal = torch.distributions.Normal(head.mean(features), (variance + 1e-6).sqrt())
    actions = 0.5 * random_features(50, 3)
    close(ours.entropy(), normal.entropy().sum(-1))
    close(ours.log_prob(actions), normal.log_prob(actions).sum(-1))
    close(ours.mode(), head.mean(features))


# Noise.


@pytest.mark.parametrize(("freq", "lengths"), [(1, [1] * 10), (4, [4, 4, 2]), (-1, [10])])
def test_exploration_is_held_for_as_many_steps_as_asked_for(freq, lengths):
    head = explored(sde_sample_freq=freq)[0]
    noise = noise_for(head, 10).numpy()
    firsts = noise[np.cumsum([0, *lengths[:-1]])]
    assert len(np.unique(firsts[:, 0])) == len(lengths)
    np.testing.assert_array_equal(noise, np.repeat(firsts, lengths, 0))
