"""Open episodes: followed over rollouts, packed into arrays, and played again by workers."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ppo.envs.worker import Episode
from ppo.extras.resume.episodes import OpenEpisode, OpenEpisodes, pack_episodes, unpack_episodes
from ppo.extras.resume.replay import restore_emulator, save_emulator
from tests.envs.test_worker import T, make_worker, play
from tests.running import make_env

NO_ACTIONS = np.zeros((0, 2), np.float32)


def rollout_info(episodes: list[Episode], reset_envs: list[int]) -> Any:
    return SimpleNamespace(episodes=episodes, reset_envs=reset_envs)


def test_actions_of_an_episode_are_followed_over_rollouts() -> None:
    """Environment 0 plays on for five steps; environment 1 ends after the second and the fifth."""
    actions = np.arange(2 * 3 * 2 * 2, dtype=np.float32).reshape(2, 3, 2, 2)
    episodes = OpenEpisodes(2, NO_ACTIONS)
    dones = np.zeros((3, 2), bool)
    dones[1, 1] = True
    first = rollout_info([Episode(1, 1, 5.0, 2, {})], [0, 1])
    episodes.update(actions[0], dones, first, np.array([1, 2]), {}, {})
    assert [episode.number for episode in episodes.open] == [0, 1]
    np.testing.assert_array_equal(episodes.open[1].actions, actions[0, 2:, 1])
    second = rollout_info([Episode(1, 1, 7.0, 3, {})], [])
    episodes.update(actions[1], dones, second, np.array([1, 3]), {}, {})
    assert [episode.number for episode in episodes.open] == [0, 2]
    np.testing.assert_array_equal(episodes.open[0].actions, actions[:, :, 0].reshape(6, 2))


def test_an_emulators_state_continues_a_game_in_another_environment() -> None:
    flags = {"frame_skip": 4, "end_on_life_loss": True, "sticky_actions": 0.5}
    ours, theirs = (make_env("BreakoutNoFrameskip-v4", **flags) for _ in range(2))
    ours.reset(seed=0)
    for action in (1, 2, 3, 0) * 5:
        observation = ours.step(action)[0].copy()
        # Also with each action in turn held at the beginning of the next frame.
        restore_emulator(theirs, save_emulator(ours), observation)
        assert theirs.unwrapped.held == ours.unwrapped.held
    for action in (1, 2, 3, 0) * 20:
        mine = ours.step(action)
        other = theirs.step(action)
        np.testing.assert_array_equal(mine[0], other[0])
        assert mine[1:] == other[1:]


def test_open_episodes_are_resumed_where_the_last_row_shows_the_same() -> None:
    first = make_worker()
    play(first, T)
    info = first.end()
    numbers = first.own_counts - 1
    ends = first.rollout.terminations | first.rollout.truncations
    lasts = [max(ends[:, i].nonzero()[0], default=-1) + 1 for i in range(2)]
    episodes = [
        OpenEpisode(int(numbers[i]), first.rollout.actions[lasts[i] :, i]) for i in range(2)
    ]
    second = make_worker()
    second.rollout.observations[-1] = first.rollout.observations[-1]
    second.rollout.observations[-1, 1, 1] += 1  # which environment 1 does not show
    second.own_counts[:] = first.own_counts
    assert second.call("open_episodes", "restore", episodes, {}) == [1]
    second.begin()
    assert second.info.reset_envs == [1]
    assert second.own_counts.tolist() == [numbers[0] + 1, numbers[1] + 2]
    np.testing.assert_array_equal(
        second.rollout.observations[0, 0], first.rollout.observations[-1, 0]
    )
    assert info.reset_envs == [0, 1]


def test_observations_outside_are_not_counted_again_when_an_episode_is_replayed() -> None:
    first = make_worker("envs.test_worker:Stray")
    play(first, 4)
    second = make_worker("envs.test_worker:Stray")
    second.rollout.observations[-1] = first.rollout.observations[4]
    episodes = [OpenEpisode(0, first.rollout.actions[:4, i]) for i in range(2)]
    assert second.call("open_episodes", "restore", episodes, {}) == []
    second.begin()
    assert second.end().faults == {0: {}, 1: {}}


@pytest.mark.parametrize(
    "changes",
    [
        {"lengths": np.array([3, -1])},
        {"numbers": np.array([1, 2, 3])},
        {"numbers": np.array([-1, 0])},
        {"actions": np.zeros((2, 3), np.float32)},
    ],
)
def test_packed_arrays_that_do_not_fit_together_are_refused(changes: dict[str, Any]) -> None:
    episodes = [OpenEpisode(3, np.ones((2, 2), np.float32)), OpenEpisode(0, None)]
    with pytest.raises(ValueError):  # noqa: PT011 (either of three sentences)
        unpack_episodes(pack_episodes(episodes, NO_ACTIONS) | changes, NO_ACTIONS)
