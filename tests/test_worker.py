"""Rollouts of the counting environment: every row follows from the episode, step and action."""

from multiprocessing import resource_tracker

import numpy as np
import pytest
import torch

from ppo.envs.pool import WorkerPool
from ppo.envs.seeding import Stream, integer_seed
from tests.running import children, make_components

T, N = 12, 5


def collect(num_workers: int, num_rollouts: int = 3) -> tuple[dict[str, np.ndarray], list, list]:
    """Join rollouts; their episodes and last observations count steps from the run's start."""
    parts = make_components("Counting-v0", num_envs=N, num_steps=T, num_workers=num_workers)
    tables: dict[str, list[np.ndarray]] = {}
    episodes, lasts = [], []
    with WorkerPool(parts.make_worker, N, num_workers) as workers:
        for rollout in range(num_rollouts):
            for table in vars(parts.rollout).values():
                table[: T if rollout else T + 1] = (
                    77  # what a worker leaves out would show; row T is carried over
                )
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


@pytest.mark.parametrize("num_workers", [0, 1, 2, 5])
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
                expected_episodes.append((t, environment, total, step))
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
    parts = make_components(
        "Target-v0", num_envs=8, num_steps=64
    )  # its step asserts that it gets what fits the box
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
    info = parts.make_worker(env_indices=range(1)).collect(1)
    ends = parts.rollout.terminations[:, 0].nonzero()[0]
    assert len(ends) > 1
    assert [episode.step for episode in info.episodes] == ends.tolist()


def test_features_are_recorded_of_the_observations_that_they_are_of() -> None:
    parts = make_components(
        "Picture-v0", model="cnn_small", screen_size=36, num_envs=3, num_steps=5, num_minibatches=1
    )
    parts.make_worker(env_indices=range(3)).collect(1)
    observations = torch.from_numpy(parts.rollout.observations[:-1]).flatten(0, 1)
    features = parts.model.policy_trunk(observations).detach()
    recorded = torch.from_numpy(parts.rollout.features).flatten(0, 1)
    torch.testing.assert_close(recorded, features, atol=0.02, rtol=0.02)
    assert not torch.allclose(recorded[0], recorded[1], atol=0.02, rtol=0.02)


def test_the_flags_reach_the_games() -> None:
    parts = make_components(
        "PongNoFrameskip-v4",
        num_envs=1,
        num_steps=4,
        num_minibatches=1,
        frame_skip=3,
        noop_max=0,
        frame_stack=2,
        screen_size=40,
        end_on_life_loss=True,
        sticky_actions=0.5,
        full_action_space=True,
    )
    worker = parts.make_worker(env_indices=range(1))
    worker.collect(1)
    env = worker.environments.envs[0]
    assert parts.rollout.observations.shape == (5, 1, 40, 40, 2)
    assert env.unwrapped.ale.getEpisodeFrameNumber() == 3 * (1 + 4)  # FIRE, and four steps
    assert env.unwrapped.ale.getFloat("repeat_action_probability") == 0.5
    assert env.action_space.n == 18
    assert env.has_wrapper_attr("lives")  # of EndOnLifeLoss
