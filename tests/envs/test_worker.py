"""Rollouts of the counting environment, where every row follows from episode, step and action."""

from multiprocessing import resource_tracker
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ppo.envs.errors import WorkerError
from ppo.envs.heartbeat import RESET, SHAPE
from ppo.envs.make import make_env
from ppo.envs.pool import WorkerPool
from ppo.envs.seeding import Stream, integer_seed
from ppo.envs.shared_memory import SharedArray
from ppo.envs.worker import Worker
from tests.running import children, environment_flags, make_components, worker_of

T, N = 12, 5


def collect(num_workers: int, num_rollouts: int = 3) -> tuple[dict[str, np.ndarray], list, list]:
    """Join rollouts; their episodes and last observations count steps from the run's start."""
    parts = make_components("Counting-v0", num_envs=N, num_steps=T, num_workers=num_workers)
    tables: dict[str, list[np.ndarray]] = {}
    episodes, lasts = [], []
    with WorkerPool(parts.make_worker, N, num_workers) as workers:
        for rollout in range(num_rollouts):
            for table in vars(parts.rollout).values():  # what is left out would show
                table[: T if rollout else T + 1] = 77
            info = workers.collect(rollout + 1)
            episodes += [
                episode._replace(step=episode.step + rollout * T) for episode in info.episodes
            ]
            lasts += [
                last._replace(step=last.step + rollout * T) for last in info.last_observations
            ]
            for name, table in vars(parts.rollout).items():
                tables.setdefault(name, []).append(
                    table[: T + (rollout == num_rollouts - 1)].copy()
                )
    joined = {name: np.concatenate(pieces) for name, pieces in tables.items()}
    return joined, episodes, lasts


@pytest.mark.parametrize("num_workers", [0, 2])
def test_three_rollouts_join_without_gap_or_repeat(num_workers: int) -> None:
    tables, episodes, lasts = collect(num_workers)
    expected_episodes, expected_lasts = [], []
    for environment in range(N):
        episode = step = 0
        for t in range(3 * T):
            seed = integer_seed(0, Stream.EPISODE, environment, episode) % 2**16
            assert tables["observations"][t, environment].tolist() == [seed, step]
            assert tables["rewards"][t, environment] == tables["actions"][t, environment] + 10
            step += 1
            ended = step == 3 + seed % 7
            assert tables["terminations"][t, environment] == (ended and seed % 2 == 1)
            assert tables["truncations"][t, environment] == (ended and seed % 2 == 0)
            if ended:
                total = tables["rewards"][t - step + 1 : t + 1, environment].sum()
                expected_episodes.append((t, environment, total, step, {}))
                if seed % 2 == 0:
                    expected_lasts.append((t, environment, [seed, step]))
                episode, step = episode + 1, 0
    assert episodes == sorted(expected_episodes)
    assert sorted((t, environment, last.tolist()) for t, environment, last, _ in lasts) == sorted(
        expected_lasts
    )


def test_what_environments_do_is_the_same_in_any_number_of_workers() -> None:
    alone, spread = collect(num_workers=0), collect(num_workers=2)
    for name, table in alone[0].items():
        np.testing.assert_array_equal(table, spread[0][name])
    assert alone[1] == spread[1]


def test_environments_and_rollouts_have_randomness_of_their_own() -> None:
    actions = collect(num_workers=0)[0]["actions"]
    sequences = [
        tuple(actions[rollout * T : (rollout + 1) * T, i, 0])
        for rollout in range(3)
        for i in range(N)
    ]
    assert len(set(sequences)) == 3 * N


def test_actions_are_clipped_for_the_environment_and_kept_unclipped() -> None:
    parts = make_components("Target-v0", num_envs=8, num_steps=64)  # asserts that actions fit
    with WorkerPool(parts.make_worker, 8, 0) as workers:
        workers.collect(1)
    actions = parts.rollout.actions
    assert actions.shape == (64, 8, 2)
    assert actions[..., 0].min() < 0
    assert actions.max() > 1
    clipped = np.clip(actions, [0, -1], [1, 1])
    np.testing.assert_allclose(parts.rollout.rewards, -np.abs(clipped - 0.5).sum(-1), rtol=1e-5)


def test_no_process_outlives_the_pool() -> None:
    resource_tracker.ensure_running()  # multiprocessing's own helper, which stays
    before = children()
    parts = make_components("Counting-v0", num_envs=4, num_steps=4)
    with WorkerPool(parts.make_worker, 4, 2) as workers:
        workers.collect(1)
        assert len(children() - before) >= 2
    assert not children() - before


def test_an_info_that_an_environment_uses_again_is_left_alone() -> None:
    parts = make_components("SameInfo-v0", num_envs=1, num_steps=30)
    info = worker_of(parts, 1).collect(1)
    ends = parts.rollout.terminations[:, 0].nonzero()[0]
    assert len(ends) > 1
    assert [episode.step for episode in info.episodes] == ends.tolist()


def shared(array: np.ndarray) -> SharedArray:
    result = SharedArray(array.shape, array.dtype)
    result.array[:] = array
    return result


def make_worker(env_name: str = "Counting-v0", n: int = 2) -> Worker:
    """Make a worker for all environments of a rank, whose ids in the run are 5 and 6."""
    module = "tests." if ":" in env_name else "tests.environments:"
    config = environment_flags(module + env_name)
    size = make_env(config).observation_space.shape
    rollout = {
        "observations": np.full((T + 1, n, *size), -1.0),
        "action_masks": np.zeros((T + 1, n, 0), bool),
        "states": np.ones((T + 1, n, 1), np.float32),
        "actions": np.zeros((T, n, 1), np.int64),
        "rewards": np.zeros((T, n), np.float32),
        "terminations": np.ones((T, n), bool),
        "truncations": np.ones((T, n), bool),
    }
    return Worker(
        config=config,
        make_sampler=None,
        shared_rollout={name: shared(table) for name, table in rollout.items()},
        episode_counts=SharedArray((n,), np.int64),
        env_ids=range(5, 5 + n),
        env_indices=range(n),
        heartbeat=SharedArray(SHAPE, np.int64),
    )


def play(worker: Worker, num_steps: int = T) -> None:
    worker.begin()
    for t in range(num_steps):
        worker.step(t, range(len(worker.envs)))


class Stray(gymnasium.Env):
    """Shows an observation outside of its space at every second step."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.full(1, 2.0 * (self.steps % 2), np.float32), 0.0, False, False, {}


def test_observations_outside_are_counted_for_each_rollout() -> None:
    worker = make_worker("envs.test_worker:Stray")
    for _ in range(2):
        play(worker, 4)
        assert worker.end().faults == {key: {"observation_outside": 2} for key in (0, 1)}
    worker.begin()
    assert worker.end().faults == {0: {}, 1: {}}


def test_a_mask_that_the_first_reset_did_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="action_mask"):
        make_worker("environments:Masked-v0").begin()


def test_the_cause_of_an_error_is_named() -> None:
    worker = make_worker()
    worker.begin()
    worker.calls.beat(RESET, 1)
    with pytest.raises(
        WorkerError, match=r"^environment 6 of tests.environments:Counting-v0 raised IndexError: "
    ):
        worker.run("step", T + 1, range(2))
    worker.is_sampling = True
    with pytest.raises(WorkerError, match=r"^the policy raised IndexError: "):
        worker.run("step", T + 1, range(2))
    worker.actions = np.full((2, 1), np.nan)
    with pytest.raises(WorkerError, match=r"^the policy.s actions are not finite: lower --learn"):
        worker.run("step", T + 1, range(2))
