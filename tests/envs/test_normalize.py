"""Running statistics against numpy on all samples at once; rewards against Baselines' rule."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ppo.envs.normalize import NormalizeObservation, NormalizeReward, RunningMeanStd

BATCH, ONE_MORE = np.array([[1, 2], [3, 4], [5, 0]]), np.array([[10, -4]])
NUMBERS = st.floats(-100, 100)


def alone(moments):
    """Return the moments of all processes' samples where there is one process."""
    return [moments]


def test_golden_running_mean_and_variance():
    statistics = RunningMeanStd((2,))
    statistics.update(BATCH, alone)
    np.testing.assert_allclose(statistics.mean, [3, 2])
    np.testing.assert_allclose(statistics.variance, [8 / 3, 8 / 3])
    assert statistics.count == 3
    statistics.update(ONE_MORE, alone)
    np.testing.assert_allclose(statistics.mean, [4.75, 0.5])
    np.testing.assert_allclose(statistics.variance, [11.1875, 8.75])
    assert statistics.count == 4


def test_samples_far_from_zero_have_the_deviation_that_they_have_without_the_offset():
    random = np.random.default_rng(0)
    statistics = RunningMeanStd((2,))
    offsets = np.array([5e6, 1.7e9])
    for _ in range(10):
        statistics.update(offsets + random.normal(0, 0.1, (1000, 2)), alone)
    np.testing.assert_allclose(statistics.mean, offsets, rtol=0, atol=0.01)
    np.testing.assert_allclose(np.sqrt(statistics.variance), 0.1, rtol=0.02)


@pytest.mark.parametrize(
    ("dtype", "width", "offset"),
    [("float64", 0.2, 1.7e9), ("int64", 50, 10**12), ("int32", 50, 10**9)],
)
def test_numbers_that_float32_would_round_are_standardised_in_float64(dtype, width, offset):
    near = np.linspace(-width, width, 101)
    observations = (offset + near).astype(dtype)[:, None, None]
    normalize = NormalizeObservation((1,), True, dtype=np.dtype(dtype))
    normalize.update(observations, alone)
    found = normalize(observations)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.ravel(), near / near.std(), atol=1e-5)


@given(
    st.lists(
        st.integers(1, 5).flatmap(lambda n: arrays(float, (n, 2), elements=NUMBERS)),
        min_size=1,
        max_size=5,
    )
)
def test_batches_merge_into_the_statistics_of_all_samples(batches):
    statistics = RunningMeanStd((2,))
    for batch in batches:
        statistics.update(batch, alone)
    samples = np.concatenate(batches)
    np.testing.assert_allclose(statistics.mean, samples.mean(0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(statistics.variance, samples.var(0), rtol=1e-9, atol=1e-9)


def test_golden_normalized_observation_is_clipped():
    normalize = NormalizeObservation((2,), True)
    normalize.update(np.concatenate([BATCH, ONE_MORE])[:, None], alone)
    normalized = normalize(np.array([[1000, 2], [-1000, 2]]))
    np.testing.assert_allclose(normalized, [[10, 0.507093], [-10, 0.507093]], atol=6e-7)
    assert normalized.dtype == np.float32


def test_an_observation_that_never_varies_stays_finite():
    normalize = NormalizeObservation((1,), True)
    normalize.update(np.full((1000, 1, 1), 3.0), alone)
    assert abs(normalize(np.array([3.0]))).item() < 1e-3


def test_rewards_of_one_step_rollouts_are_scaled_as_in_baselines():
    random, gamma = np.random.default_rng(0), 0.9
    all_rewards, all_dones = random.normal(2, 3, size=(200, 3)), random.random((200, 3)) < 0.2
    normalize, accumulated, samples = NormalizeReward(3, gamma, True), np.zeros(3), []
    for rewards, dones in zip(all_rewards, all_dones, strict=True):
        accumulated = accumulated * gamma + rewards
        samples.extend(accumulated)
        expected = np.clip(rewards / np.sqrt(np.var(samples) + 1e-8), -10, 10)
        np.testing.assert_allclose(
            normalize.update_and_scale(rewards[None], dones[None], alone), [expected], rtol=1e-5
        )
        accumulated[dones] = 0


@given(st.lists(st.integers(1, 20), min_size=1, max_size=5))
def test_discounted_returns_are_carried_over_rollouts_but_not_over_episodes(rollout_lengths):
    gamma, steps = 0.9, sum(rollout_lengths)
    dones = np.arange(1, steps + 1) % 10 == 0
    normalize, end = NormalizeReward(1, gamma, True), 0
    for length in rollout_lengths:
        start, end = end, end + length
        normalize.update_and_scale(np.ones((length, 1)), dones[start:end, None], alone)
        np.testing.assert_allclose(normalize.returns, (1 - gamma ** (end % 10)) / (1 - gamma))
    discounted = (1 - gamma ** (np.arange(steps) % 10 + 1)) / (1 - gamma)
    assert discounted.max() <= (1 - gamma**10) / (1 - gamma)
    mean, variance = discounted.mean(), discounted.var()
    np.testing.assert_allclose(
        [normalize.statistics.mean, normalize.statistics.variance], [mean, variance]
    )


def test_rewards_are_not_centred():
    rewards = np.random.default_rng(0).uniform(1, 2, size=(50, 2))
    scaled = (
        NormalizeReward(2, 0.9, True).update_and_scale(rewards, np.zeros((50, 2), bool), alone)
        / rewards
    )
    assert scaled.min() > 0
    np.testing.assert_allclose(scaled, scaled[0, 0], rtol=1e-5)


def test_a_spike_is_clipped():
    rewards = np.zeros((1000, 1), np.float32)
    rewards[0], rewards[500] = 1e6, -1e6
    scaled = NormalizeReward(1, 0.5, True).update_and_scale(
        rewards, np.ones((1000, 1), bool), alone
    )
    assert (scaled.max(), scaled.min(), scaled.dtype) == (10, -10, np.float32)


def test_statistics_are_saved_and_loaded_and_used_at_once() -> None:
    ours = NormalizeObservation((2,), True)
    ours.update(BATCH[:, None], alone)
    theirs = NormalizeObservation((2,), True)
    theirs.load_state_dict(vars(ours.statistics))
    np.testing.assert_array_equal(theirs(ONE_MORE), ours(ONE_MORE))
    for normalize in (ours, theirs):
        normalize.update(ONE_MORE[:, None], alone)
    np.testing.assert_array_equal(theirs(BATCH), ours(BATCH))
    assert vars(ours.statistics).keys() == {"mean", "variance", "count"}


def test_samples_of_other_processes_are_merged() -> None:
    both, one = RunningMeanStd((2,)), RunningMeanStd((2,))
    more = np.concatenate([BATCH, BATCH[:3] + 1])
    both.update(more, alone)
    one.update(BATCH, lambda own: [own, (3, more[-3:].mean(0), more[-3:].var(0))])
    np.testing.assert_allclose(one.mean, both.mean)
    np.testing.assert_allclose(one.variance, both.variance)
    assert one.count == both.count


def test_turned_off_they_return_what_they_are_given():
    observations, rewards, dones = (
        np.full((1, 1, 2), 99.0),
        np.full((1, 1), 99.0),
        np.zeros((1, 1), bool),
    )
    normalize = NormalizeObservation((2,), False)
    normalize.update(observations, alone)
    assert normalize(observations) is observations
    assert NormalizeReward(1, 0.9, False).update_and_scale(rewards, dones, alone) is rewards
