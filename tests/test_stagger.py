"""--stagger: first episodes are cut at random, as truncations that no statistics count."""

from typing import Any

import numpy as np
import pytest

from ppo.envs.seeding import Stream, integer_seed
from ppo.errors import ConfigError
from ppo.settings import settle
from tests.running import running
from tests.test_open_episodes import second_worker
from tests.worlds import Counting

LIMIT, T, N = 20, 8, 6
FLAGS: dict[str, Any] = {"max_episode_steps": LIMIT, "num_steps": T, "num_envs": N, "stagger": True}


class Endless(Counting):
    """Its episodes have a time limit only."""

    def step(self, action: Any) -> Any:
        observation, reward, *_, info = super().step(action)
        return observation, reward, False, False, info


def test_first_episodes_end_anywhere_and_leave_last_observations_only(tmp_path):
    ends: list[list[int]] = [[] for _ in range(N)]
    with running(Endless, tmp_path, **FLAGS) as run:
        for rollout in range(6):
            report = run.collect().report
            for t, index in np.argwhere(run.rollout.truncations):
                ends[index].append(rollout * T + t + 1)
            whole = {(x.step, x.environment) for x in report.episodes}
            for step, index, rows in report.last:
                number = len(ends[index]) - 1
                seed = integer_seed(0, Stream.EPISODE, index, number) % 2**16
                length = LIMIT if number else ends[index][0]
                assert rows["observations"].tolist() == [seed, length]
                assert ((step, index) in whole) == (number > 0)
            assert all(x.episode_length == LIMIT for x in report.episodes)
            assert not run.rollout.terminations.any()
    firsts = [first for first, *_ in ends]
    assert len({*firsts}) > 3
    assert all(0 < first < LIMIT for first in firsts)
    for first, *rest in ends:
        assert rest == [first + LIMIT * k for k in range(1, len(rest) + 1)]


@pytest.mark.parametrize("rollouts", [1, 2, 3])
def test_open_episodes_are_restored_before_and_after_the_cut(rollouts, tmp_path):
    with running(Endless, tmp_path, **FLAGS) as run:
        for _ in range(rollouts):
            run.collect()
        worker = second_worker(run)
        assert worker.restore(run.open_episodes.to_replay(), {}) == []
        for iteration in range(rollouts + 1, rollouts + 4):
            worker.collect(iteration, {})
            run.collect()
            for name in ("observations", "truncations"):
                np.testing.assert_array_equal(worker.tables[name], run.rollout.tables[name])


@pytest.mark.parametrize(
    ("flags", "longest"),
    [
        ({}, LIMIT),
        ({"num_steps": LIMIT}, 0),
        ({"frame_skip": 2}, LIMIT // 2),
        ({"frame_skip": 4}, 0),
        ({"max_episode_steps": None}, 0),
    ],
)
def test_a_time_limit_longer_than_a_rollout_is_needed(flags, longest):
    settings = {"env_name": Endless, "preset": "none", **FLAGS, **flags}
    assert not settle({**settings, "stagger": False}).spaces.make_env.longest_cut
    if longest:
        assert settle(settings).spaces.make_env.longest_cut == longest
        return
    with pytest.raises(ConfigError, match="--stagger=True needs a time limit"):
        settle(settings)
