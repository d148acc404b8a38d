"""Stepping a slice of environments: heartbeat, resets, open episodes, observations outside."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from ppo.envs.environment_slice import EnvironmentSlice, called_env

from ppo.envs.episodes import OpenEpisode
from ppo.envs.make import make_env

T = 12
CONFIG = SimpleNamespace(seed=0, squash_actions=False)


def make_slice(env_name: str = "Counting-v0", n: int = 2, num_masks: int = 0) -> EnvironmentSlice:
    make = partial(
        make_env, f"tests.{env_name}" if ":" in env_name else f"tests.environments:{env_name}"
    )
    size = make().observation_space.shape
    rollout = SimpleNamespace(
        observations=np.full((T + 1, n, *size), -1.0),
        action_masks=np.zeros((T + 1, n, num_masks), bool),
        states=np.ones((T + 1, n, 1), np.float32),
        actions=np.zeros((T, n, 1), np.int64),
        rewards=np.zeros((T, n), np.float32),
        terminations=np.ones((T, n), bool),
        truncations=np.ones((T, n), bool),
    )
    return EnvironmentSlice(
        CONFIG,
        make,
        [rollout],
        episode_counts=np.zeros(n, np.int64),
        env_ids=range(5, 5 + n),
        env_indices=range(n),
        heartbeat=[0, 0],
    )


def play(environments: EnvironmentSlice, num_steps: int = T) -> None:
    environments.begin(1)
    for t in range(num_steps):
        environments.step(t, range(len(environments.envs)))


@pytest.mark.parametrize("i", [0, 1, 7])
def test_a_heartbeats_call_names_its_environment(i: int) -> None:
    assert called_env(i) == called_env(~i) == i


def test_every_call_of_an_environment_is_a_heartbeat() -> None:
    environments = make_slice()
    assert environments.heartbeat == [2, ~1]  # both were made
    environments.begin(1)
    assert environments.heartbeat == [4, ~1]  # and reset
    environments.step(0, range(2))
    assert environments.heartbeat == [6, 1]


def test_only_members_are_stepped() -> None:
    environments = make_slice()
    environments.begin(1)
    environments.step(0, range(1, 2))
    assert environments.rollout.observations[1, :, 1].tolist() == [-1, 1]


def test_recurrent_states_are_zero_where_episodes_begin() -> None:
    environments = make_slice()
    play(environments)
    starts = environments.rollout.observations[:, :, 1] == 0
    np.testing.assert_array_equal(environments.rollout.states[..., 0] == 0, starts)
    ends = environments.rollout.terminations | environments.rollout.truncations
    np.testing.assert_array_equal(starts[1:], ends)


def test_open_episodes_are_resumed_where_the_last_row_shows_the_same() -> None:
    first = make_slice()
    play(first, T)
    info = first.end()
    numbers = first.episode_counts - 1
    ends = first.rollout.terminations | first.rollout.truncations
    lasts = [max(ends[:, i].nonzero()[0], default=-1) + 1 for i in range(2)]
    episodes = [
        OpenEpisode(int(numbers[i]), first.rollout.actions[lasts[i] :, i]) for i in range(2)
    ]
    second = make_slice()
    second.rollout.observations[-1] = first.rollout.observations[-1]
    second.rollout.observations[-1, 1, 1] += 1  # which environment 1 does not show
    second.episode_counts[:] = first.episode_counts
    assert second.restore(episodes) == [1]
    second.begin(2)
    assert second.info.reset_envs == [1]
    assert second.episode_counts.tolist() == [numbers[0] + 1, numbers[1] + 2]
    np.testing.assert_array_equal(
        second.rollout.observations[0, 0], first.rollout.observations[-1, 0]
    )
    assert info.reset_envs == [0, 1]


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
    environments = make_slice("test_environment_slice:Stray")
    for _ in range(2):
        play(environments, 4)
        assert environments.end().num_outside == {0: 2, 1: 2}
    environments.begin(3)
    assert environments.end().num_outside == {0: 0, 1: 0}


def test_a_mask_that_the_first_reset_did_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="action_mask"):
        make_slice("environments:Masked-v0").begin(1)


def test_actions_that_are_not_finite_are_found_in_the_row_that_is_carried_out() -> None:
    environments = make_slice()
    environments.rollout.actions = np.full((T, 2, 1), np.nan)
    assert environments.actions_are_finite()  # none is carried out yet
    environments.row = 3
    assert not environments.actions_are_finite()
