"""Running statistics against numpy on all samples at once; rewards against Baselines' rule."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ppo.envs.normalize import NormalizeReward, RunningMeanStd
from tests.running import running
from tests.worlds import Counting

BATCH, ONE_MORE = np.array([[1.0, 2], [3, 4], [5, 0]]), np.array([[10.0, -4]])


def test_golden_running_mean_and_variance():
    statistics = RunningMeanStd((2,))
    statistics.update(BATCH)
    np.testing.assert_allclose(statistics.mean, [3, 2])
    np.testing.assert_allclose(statistics.variance, [8 / 3, 8 / 3])
    statistics.update(ONE_MORE)
    np.testing.assert_allclose(statistics.mean, [4.75, 0.5])
    np.testing.assert_allclose(statistics.variance, [11.1875, 8.75])
    assert statistics.count == 4


def test_rewards_of_one_step_rollouts_are_scaled_as_in_baselines():
    random, gamma = np.random.default_rng(0), 0.9
    all_rewards, all_dones = random.normal(2, 3, size=(200, 3)), random.random((200, 3)) < 0.2
    normalize, accumulated, samples = NormalizeReward(3, gamma), np.zeros(3), []
    for rewards, dones in zip(all_rewards, all_dones, strict=True):
        accumulated = accumulated * gamma + rewards
        samples.extend(accumulated)
        expected = np.clip(rewards / np.sqrt(np.var(samples) + 1e-8), -10, 10)
        found = normalize.update_and_scale(rewards[None], dones[None])
        np.testing.assert_allclose(found, [expected], rtol=1e-5)
        accumulated[dones] = 0


@given(st.lists(st.integers(1, 20), min_size=1, max_size=5))
def test_discounted_returns_are_carried_over_rollouts_but_not_over_episodes(lengths):
    gamma, steps = 0.9, sum(lengths)
    dones = np.arange(1, steps + 1) % 10 == 0
    normalize, end = NormalizeReward(1, gamma), 0
    for length in lengths:
        start, end = end, end + length
        normalize.update_and_scale(np.ones((length, 1)), dones[start:end, None])
        np.testing.assert_allclose(normalize.returns, (1 - gamma ** (end % 10)) / (1 - gamma))
    discounted = (1 - gamma ** (np.arange(steps) % 10 + 1)) / (1 - gamma)
    found = [normalize.statistics.mean, normalize.statistics.variance]
    np.testing.assert_allclose(found, [discounted.mean(), discounted.var()])


def test_observation_statistics_are_of_all_environments_and_change_after_the_update(tmp_path):
    with running(Counting, tmp_path, normalize_observations=True) as run:
        seen: list[Any] = []
        for _ in range(3):
            before = run.normalize.shift.copy()
            rollout = run.collect()
            batch = run.make_batch(rollout)
            np.testing.assert_array_equal(run.normalize.shift, before)
            seen.extend(rollout.observations[:-1].reshape(-1, 2).tolist())
            run.update(batch)
            np.testing.assert_allclose(run.normalize.shift, np.mean(seen, 0))
            np.testing.assert_allclose(run.normalize.scale, 1 / np.std(seen, 0), rtol=1e-5)


def test_clipped_rewards_are_learned_from_and_the_environments_own_are_reported(tmp_path):
    with running(Counting, tmp_path, clip_rewards=True, gamma=0) as run:
        rollout = run.collect()
        np.testing.assert_allclose(run.make_batch(rollout)["returns"], 1, rtol=1e-5)
        for episode in rollout.report.episodes:
            assert episode.episode_return >= 10 * episode.episode_length


def test_the_return_of_a_run_restarts_after_terminations_and_truncations(tmp_path):
    with running(Counting, tmp_path, normalize_rewards=True, gamma=0.9) as run:
        total, samples, ends = np.zeros(4), [], np.zeros(2)
        for _ in range(3):
            rollout = run.collect()
            found = run.make_batch(rollout)
            for t in range(16):
                total = 0.9 * total + rollout.rewards[t]
                samples.extend(total)
                total[rollout.terminations[t] | rollout.truncations[t]] = 0
            ends += rollout.terminations.sum(), rollout.truncations.sum()
            np.testing.assert_allclose(run.normalize_reward.returns, total, rtol=1e-6)
            statistics = run.normalize_reward.statistics
            np.testing.assert_allclose(statistics.variance, np.var(samples), rtol=1e-6)
        assert found
        assert ends.min() > 0
