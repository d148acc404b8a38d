"""Sampling actions: noise by environment and iteration, rows written where they belong."""

from types import SimpleNamespace

import numpy as np

from ppo.envs.sampler import RolloutSampler
from ppo.envs.shared_memory import SharedArray

T, N = 4, 3


class Echo:
    """An actor whose action is the sum of what it reads; it counts the times that it was asked."""

    def __init__(self) -> None:
        self.num_refreshed = 0

    def refresh(self) -> None:
        self.num_refreshed += 1

    def draw_noise(self, generator: np.random.Generator, num_steps: int) -> np.ndarray:
        return generator.random((num_steps, 1))

    def __call__(
        self,
        observations: np.ndarray,
        noise: np.ndarray,
        mask: np.ndarray,
        states: np.ndarray,
        features: np.ndarray,
    ) -> np.ndarray:
        states += 1
        features[:] = observations
        return observations + noise


def make_rollout() -> SimpleNamespace:
    return SimpleNamespace(
        observations=np.arange((T + 1) * N, dtype=float).reshape(T + 1, N, 1),
        action_masks=np.zeros((T + 1, N, 0), bool),
        states=np.zeros((T + 1, N, 2)),
        features=np.zeros((T, N, 1)),
        actions=np.zeros((T, N, 1)),
    )


def make_sampler(env_ids: range, rollout: SimpleNamespace) -> RolloutSampler:
    return RolloutSampler(
        lambda weights: Echo(),
        SharedArray((1,), np.float32),
        lambda observations: 10 * observations,
        seed=0,
        env_ids=env_ids,
        rollout=rollout,
    )


def sample(sampler: RolloutSampler, iteration: int) -> None:
    sampler.begin(iteration)
    for t in range(T):
        sampler(t)


def test_actions_features_and_states_are_written_to_their_rows() -> None:
    rollout = make_rollout()
    sampler = make_sampler(range(N), rollout)
    sample(sampler, 1)
    np.testing.assert_array_equal(rollout.features, 10 * rollout.observations[:-1])
    np.testing.assert_array_equal(rollout.actions, rollout.features + sampler.noise)
    for t in range(T + 1):
        assert (rollout.states[t] == t).all()
    assert sampler.actor.num_refreshed == 1


def test_some_columns_leave_the_others_as_they_are() -> None:
    rollout = make_rollout()
    sampler = make_sampler(range(N), rollout)
    sampler.begin(1)
    sampler(0, slice(0, N, 2))
    assert rollout.actions[0, :, 0].astype(bool).tolist() == [True, False, True]
    assert rollout.states[1, :, 0].tolist() == [1, 0, 1]


def test_noise_depends_on_the_environment_and_the_iteration_only() -> None:
    whole = make_sampler(range(N), make_rollout())
    part = make_sampler(range(1, 2), make_rollout())
    for iteration in (1, 2):
        whole.begin(iteration)
        part.begin(iteration)
        np.testing.assert_array_equal(part.noise[:, 0], whole.noise[:, 1])
    first = whole.noise
    whole.begin(3)
    assert not np.array_equal(first, whole.noise)
