"""Distributions against torch.distributions, and frequencies of samples."""

import itertools
import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch.testing import assert_close

from ppo.config.config import Config
from ppo.models.distributions import Categorical, DiagonalGaussian, Squashed, policy_head
from ppo.models.errors import ModelMismatch

SAMPLES = 100_000
SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 5))
PLAIN = Config(log_std_init=0.0)


def matrices(shape, low, high):
    return arrays(np.float32, shape, elements=st.floats(low, high, width=32)).map(torch.from_numpy)


@settings(max_examples=40)
@given(st.data(), SHAPES)
def test_categorical_equals_torch(data, shape):
    logits = data.draw(matrices(shape, -30, 30))
    actions = torch.from_numpy(
        data.draw(arrays(np.int64, shape[0], elements=st.integers(0, shape[1] - 1)))
    )
    ours, theirs = Categorical(logits.unsqueeze(1)), torch.distributions.Categorical(logits=logits)
    assert_close(
        ours.log_prob(actions.unsqueeze(1)), theirs.log_prob(actions), rtol=1e-5, atol=1e-5
    )
    assert_close(ours.entropy(), theirs.entropy(), rtol=1e-5, atol=1e-5)
    assert_close(ours.mode(), logits.argmax(-1, keepdim=True))


@settings(max_examples=40)
@given(st.data(), SHAPES)
def test_diagonal_gaussian_equals_torch(data, shape):
    mean, actions, log_std = (data.draw(matrices(size, -3, 3)) for size in (shape, shape, shape[1]))
    ours = DiagonalGaussian(mean, log_std)
    theirs = torch.distributions.Independent(torch.distributions.Normal(mean, log_std.exp()), 1)
    assert_close(ours.log_prob(actions), theirs.log_prob(actions), rtol=1e-5, atol=1e-5)
    assert_close(ours.entropy(), theirs.entropy(), rtol=1e-5, atol=1e-5)
    assert_close(ours.mode(), mean)


def test_extreme_logits_stay_finite():
    logits = torch.tensor([[[100.0, -100.0]], [[-100.0, 100.0]]], requires_grad=True)
    distribution = Categorical(logits)
    log_probs, entropy = distribution.log_prob(torch.tensor([[1], [1]])), distribution.entropy()
    (log_probs.sum() + entropy.sum()).backward()
    assert log_probs.tolist() == [-200, 0]
    assert entropy.tolist() == [0, 0]
    assert logits.grad.isfinite().all()


def test_log_std_is_learned_from_zero_and_the_same_for_all_features():
    head = policy_head(4, spaces.Box(-1, 1, (2,)), PLAIN)
    head(torch.randn(5, 4)).log_prob(torch.ones(5, 2)).sum().backward()
    assert head.log_std.tolist() == [0, 0]
    assert (head.log_std.grad != 0).all()
    assert_close(head(torch.zeros(1, 4)).log_std, head(torch.ones(1, 4)).log_std)


def random_head(space, num_features=3, **options):
    """A head whose weights are as large as after long training."""
    torch.manual_seed(0)
    head = (
        policy_head(num_features, space, Config(**{"log_std_init": 0.0, **options}))
        .double()
        .requires_grad_(False)
    )
    for parameter in head.parameters():
        parameter.copy_(torch.randn_like(parameter))
    return head


def random_features(count, num_features=3):
    return torch.randn(
        count, num_features, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )


def noise_for(head, count):
    return torch.from_numpy(head.draw_noise(np.random.default_rng(0), count)).double()


def independent(head, features, sizes):
    """torch's distribution of each of a head's choices."""
    return [
        torch.distributions.Categorical(logits=part)
        for part in head.logits(features).split(sizes, -1)
    ]


def every_action(sizes):
    return torch.tensor(list(itertools.product(*map(range, sizes))))


def assert_frequencies(samples, sizes, probabilities):
    """Samples (n, D) against the probabilities of every_action(sizes).

    By a chi-square test, p = 0.001 (its limit by Wilson and Hilferty 1931)."""
    counts = torch.stack([(samples == action).all(-1).sum() for action in every_action(sizes)])
    assert (counts[probabilities == 0] == 0).all()
    counts, expected = counts[probabilities > 0], SAMPLES * probabilities[probabilities > 0]
    part = 2 / (9 * (len(counts) - 1))
    limit = (len(counts) - 1) * (1 - part + 3.09 * part**0.5) ** 3
    assert ((counts - expected).square() / expected).sum() < limit


@pytest.mark.parametrize("nvec", [[3], [2, 2], [[2, 3], [4, 1]]], ids=str)
def test_choices_of_several_sizes_equal_torch(nvec):
    sizes, features = np.ravel(nvec).tolist(), random_features(50)
    head = random_head(spaces.MultiDiscrete(nvec))
    ours, theirs = head(features), independent(head, features, sizes)
    actions = torch.stack([part.sample() for part in theirs], -1)
    log_probs = [part.log_prob(action) for part, action in zip(theirs, actions.T, strict=True)]
    assert_close(ours.log_prob(actions), sum(log_probs), rtol=1e-5, atol=1e-5)
    assert_close(ours.entropy(), sum(part.entropy() for part in theirs), rtol=1e-5, atol=1e-5)
    assert_close(ours.mode(), torch.stack([part.logits.argmax(-1) for part in theirs], -1))
    assert ours.log_prob(actions).shape == ours.entropy().shape == (50,)


def test_choices_are_drawn_as_often_as_is_likely():
    sizes = [2, 4, 3]
    head, features = random_head(spaces.MultiDiscrete(sizes)), 0.5 * random_features(1)
    samples = head(features.expand(SAMPLES, -1)).sample(noise_for(head, SAMPLES))
    joint = independent(head, features, sizes)[0].probs[0]
    for part in independent(head, features, sizes)[1:]:
        joint = (joint[:, None] * part.probs[0]).ravel()
    assert_frequencies(samples, sizes, joint)


@pytest.mark.parametrize("shape", [1, (2, 2)], ids=str)
def test_bits_equal_torch(shape):
    head, features = random_head(spaces.MultiBinary(shape)), random_features(50)
    zero, one = head.logits(features).unflatten(-1, (-1, 2)).unbind(-1)
    ours, theirs = head(features), torch.distributions.Bernoulli(logits=one - zero)
    actions = theirs.sample()
    assert actions.shape == (50, np.prod(shape))
    assert_close(ours.log_prob(actions), theirs.log_prob(actions).sum(-1), rtol=1e-5, atol=1e-5)
    assert_close(ours.entropy(), theirs.entropy().sum(-1), rtol=1e-5, atol=1e-5)
    assert_close(ours.mode(), (theirs.probs > 0.5).long())
    assert ours.log_prob(actions).shape == ours.entropy().shape == (50,)


@settings(max_examples=40)
@given(st.data(), SHAPES)
def test_squashed_log_prob_equals_torch(data, shape):
    mean, log_std, noise = (
        data.draw(matrices(size, -2, 2)).double() for size in (shape, shape[1], shape)
    )
    normal = torch.distributions.Normal(mean, log_std.exp())
    tanh = torch.distributions.TanhTransform(cache_size=1)
    theirs = torch.distributions.Independent(
        torch.distributions.TransformedDistribution(normal, [tanh]), 1
    )
    ours = Squashed(DiagonalGaussian(mean, log_std))
    before_tanh = ours.sample(noise)
    assert_close(before_tanh, mean + log_std.exp() * noise)
    assert_close(
        ours.log_prob(before_tanh), theirs.log_prob(tanh(before_tanh)), rtol=1e-5, atol=1e-5
    )
    assert_close(ours.mode(), mean)


@pytest.mark.parametrize(("mean", "log_std"), [(-2.5, -3.0), (-0.3, 0.5), (1.0, 0.0)])
def test_squashed_entropy_is_the_integral_that_defines_it(mean, log_std):
    normal = torch.distributions.Normal(torch.tensor(mean).double(), math.exp(log_std))
    x = torch.linspace(
        mean - 12 * math.exp(log_std), mean + 12 * math.exp(log_std), 200_001, dtype=torch.float64
    )
    slope = 2 * (math.log(2) - x.abs() - (-2 * x.abs()).exp().log1p())  # of tanh, its logarithm
    expected = torch.trapezoid(-normal.log_prob(x).exp() * (normal.log_prob(x) - slope), x)
    ours = Squashed(
        DiagonalGaussian(torch.tensor([[mean, 0.5]]).double(), torch.tensor([log_std, -1]).double())
    )
    alone = Squashed(DiagonalGaussian(torch.tensor([[0.5]]).double(), torch.tensor([-1]).double()))
    assert ours.entropy().shape == (1,)
    assert (ours.entropy() - alone.entropy()).item() == pytest.approx(expected.item(), abs=1e-5)


def test_far_out_squashed_actions_stay_finite():
    actions = torch.tensor([[30.0, -200.0]], requires_grad=True)
    log_prob = Squashed(DiagonalGaussian(torch.zeros(1, 2), torch.zeros(2))).log_prob(actions)
    log_prob.sum().backward()
    # Of log(1 - tanh(x)^2), which is log(4) - 2 |x| there, and of the normal density:
    assert log_prob.item() == pytest.approx(
        2 * 230 - 2 * math.log(4) - (30**2 + 200**2) / 2 - math.log(2 * math.pi)
    )
    assert actions.grad.tolist() == [[2 - 30, -2 + 200]]


PARTS = (
    spaces.Discrete(3),
    spaces.Box(-1, 1, (2,)),
    spaces.MultiBinary(2),
    spaces.MultiDiscrete([2, 3]),
)


@pytest.mark.parametrize("options", [{}, {"use_sde": True, "squash_actions": True}], ids=str)
def test_a_product_is_the_sum_of_its_parts(options):
    space = spaces.Tuple((PARTS[0], spaces.Dict({"z": PARTS[1], "a": spaces.Tuple(PARTS[2:])})))
    head, features = random_head(space, **options), random_features(20)
    leaves = [*head.heads]
    while any(hasattr(leaf, "heads") for leaf in leaves):
        leaves = [each for leaf in leaves for each in getattr(leaf, "heads", [leaf])]
    distribution, parts = head(features), [leaf(features) for leaf in leaves]
    widths = [1, 2, 2, 2]  # gymnasium sorts names, so that the numbers are last
    drawn = distribution.sample(noise_for(head, 20))
    assert drawn.shape == (20, 7)
    assert [leaf.action_size for leaf in leaves] == widths
    columns = drawn.split(widths, -1)
    log_probs = [part.log_prob(own) for part, own in zip(parts, columns, strict=True)]
    assert_close(distribution.log_prob(drawn), sum(log_probs), rtol=1e-5, atol=1e-5)
    assert_close(
        distribution.entropy(), sum(part.entropy() for part in parts), rtol=1e-5, atol=1e-5
    )
    assert_close(distribution.mode(), torch.cat([part.mode().double() for part in parts], -1))
    assert distribution.log_prob(drawn).shape == distribution.entropy().shape == (20,)


def test_a_product_of_choices_is_certain_and_drawn_as_often_as_is_likely():
    space = spaces.Tuple((spaces.Discrete(3), spaces.Dict({"a": spaces.MultiDiscrete([2, 2])})))
    head, features, sizes = random_head(space), 0.5 * random_features(1), [3, 2, 2]
    probabilities = head(features.expand(12, -1)).log_prob(every_action(sizes)).exp()
    assert probabilities.sum().item() == pytest.approx(1, abs=1e-5)
    entropy = -(probabilities * probabilities.log()).sum().item()
    assert head(features).entropy().item() == pytest.approx(entropy, abs=1e-5)
    distribution, noise = head(features.expand(SAMPLES, -1)), noise_for(head, SAMPLES)
    assert_frequencies(distribution.sample(noise), sizes, probabilities)
    mask = torch.tensor(
        [[1, 0, 1, 1, 1, 0, 1]]
    ).bool()  # not the second of three, nor the first of the last two
    allowed = torch.tensor(
        [action[0] != 1 and action[2] != 0 for action in every_action(sizes).tolist()]
    )
    expected = torch.where(allowed, probabilities, 0) / probabilities[allowed].sum()
    masked = head(features.expand(12, -1)).masked(mask.expand(12, -1))
    assert_close(masked.log_prob(every_action(sizes)).exp(), expected)
    assert_frequencies(distribution.masked(mask.expand(SAMPLES, -1)).sample(noise), sizes, expected)


def test_new_policies_are_nearly_indifferent():
    """Weights of gain 0.01: choices are about uniform, means about 0."""
    torch.manual_seed(0)
    distribution = policy_head(64, spaces.Tuple(PARTS), PLAIN)(torch.randn(10, 64))
    numbers = 1 + math.log(2 * math.pi)  # two of deviation 1
    expected = math.log(3) + numbers + 2 * math.log(2) + math.log(2) + math.log(3)
    assert_close(distribution.entropy(), torch.full((10,), expected), rtol=0, atol=0.02)
    assert distribution.mode()[:, 1:3].abs().max() < 0.1


def test_actions_without_bounds_cannot_be_squashed():
    with pytest.raises(ModelMismatch, match=r"^--squash_actions is for bounded actions"):
        policy_head(3, spaces.Dict({"a": spaces.Box(0, np.inf, (2,))}), Config(squash_actions=True))
