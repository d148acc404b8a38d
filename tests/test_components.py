"""The parts of a run, wired together."""

import os
from collections.abc import Iterator

import numpy as np
import pytest

from ppo.algorithm.rollout import Rollout
from ppo.components import make_learner
from ppo.config.config import Config
from ppo.envs.worker import RolloutInfo
from ppo.errors import ConfigError
from ppo.system import hardware
from tests.running import learn, make_components, worker_of

SMALL = {"num_envs": 2, "num_steps": 8, "num_minibatches": 2, "hidden_size": 8}


def test_layers_that_do_not_fit_are_refused_before_they_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hardware, "physical_memory", lambda: 16 * 60 * 50 - 1)
    with pytest.raises(ConfigError, match="--hidden_size or the number of layers must be lower"):
        make_components("Counting-v0", value_layers="60,50")


def test_what_is_no_learner_is_named() -> None:
    model = make_components("Counting-v0", **SMALL).model
    with pytest.raises(ConfigError, match="--learner=math:sqrt"):
        make_learner(model, Config(learner="math:sqrt"))


def test_clipped_rewards_are_learned_from_and_the_games_own_are_reported() -> None:
    parts = make_components("Counting-v0", clip_rewards=True, num_minibatches=1)
    info = worker_of(parts, 8).collect(1)
    unclipped = parts.rollout.rewards.copy()
    assert unclipped.min() > 1  # Counting pays 10 and more
    rewards: list[np.ndarray] = []
    advantages = parts.learner.advantages

    def note(rollout: Rollout, learned: np.ndarray, *values: np.ndarray) -> np.ndarray:
        rewards.append(learned)
        return advantages(rollout, learned, *values)

    parts.learner.advantages = note  # type: ignore[method-assign]
    learn(parts, info)
    np.testing.assert_array_equal(rewards[0], np.ones_like(unclipped))
    np.testing.assert_array_equal(parts.rollout.rewards, unclipped)
    assert min(episode.episode_return for episode in info.episodes) > 10


def test_statistics_change_after_a_rollout_and_not_within_it() -> None:
    parts = make_components("Counting-v0", normalize_observations=True, normalize_rewards=True)
    normalize = parts.normalize_observation
    worker = worker_of(parts, 8)
    info = worker.collect(1)
    assert normalize.shift.tolist() == [0, 0]
    learn(parts, info)
    first = parts.rollout.observations[:-1].reshape(-1, 2)
    np.testing.assert_allclose(normalize.shift, first.mean(axis=0), rtol=1e-3)
    assert worker.sampler.normalize.shift.tolist() == normalize.shift.tolist()
    assert parts.normalize_reward.statistics.count == pytest.approx(8 * 128, abs=1e-3)


def test_the_return_of_an_environment_that_was_reset_starts_anew() -> None:
    parts = make_components("Counting-v0", **SMALL, normalize_rewards=True)
    parts.normalize_reward.returns[:] = 5
    parts.finish_collect(1, RolloutInfo([], [], [1], {}, {"open_episodes": {}}))
    assert parts.normalize_reward.returns.tolist() == [5, 0]


@pytest.fixture
def two_cores() -> Iterator[list[int]]:
    """All cores of this machine, if there are two or more, for this process."""
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("only Linux has cores to choose")
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(1024))
    cores = sorted(os.sched_getaffinity(0))
    try:
        if len(cores) < 2:
            pytest.skip("there is one core only")
        os.sched_setaffinity(0, cores[:2])
        yield cores[:2]
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(("num_workers", "has_own"), [(2, True), (1, False)])
def test_a_worker_has_a_core_of_its_own_where_nothing_else_needs_one(
    two_cores: list[int], num_workers: int, has_own: bool
) -> None:
    parts = make_components("Counting-v0", **SMALL, num_workers=num_workers)
    with parts.make_pool() as pool:
        pool.collect(1)
        lost = pool.workers[0].process
        lost.kill()
        pool.collect(2)  # by another process in its place
        assert pool.workers[0].process is not lost
        for worker, core in zip(pool.workers, two_cores, strict=False):
            pid = worker.process.pid
            assert pid is not None
            assert os.sched_getaffinity(pid) == ({core} if has_own else {*two_cores})
            assert os.sched_getscheduler(pid) == os.SCHED_BATCH
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
    assert os.sched_getaffinity(0) == {*two_cores}
