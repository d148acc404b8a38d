"""Whole episodes: recorded, followed over rollouts, packed into arrays."""

import gymnasium
import pytest

from ppo.envs.episodes import WHOLE_EPISODE, RecordEpisode, episode_metrics
from tests.reporting import metrics_of, report


def test_return_and_length_are_reported_with_the_last_step_only() -> None:
    env = RecordEpisode(gymnasium.make("tests.environments:Terminated-v0"))
    for _ in range(2):
        env.reset(seed=0)
        infos = [env.step(0)[4] for _ in range(10)]
        assert all(WHOLE_EPISODE not in info for info in infos[:-1])
        assert infos[-1][WHOLE_EPISODE] == (10.0, 10)


@pytest.mark.parametrize("seed", [0, 1, 6, 10, 38, 95])
def test_finite_numbers_of_an_info_are_metrics(seed: int) -> None:
    found = episode_metrics({**report(seed), WHOLE_EPISODE: (1.0, 2)})
    assert found == metrics_of(seed)
    assert {type(value) for value in found.values()} == {float}
