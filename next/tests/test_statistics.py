"""Statistics of episodes."""

import pytest

from ppo.envs.episodes import Episode
from ppo.statistics import EpisodeStatistics


def add(statistics: EpisodeStatistics, environment: int, total: float, **metrics: float) -> None:
    statistics.add(Episode(0, environment, total, 2, metrics))


def test_metrics_are_averaged_over_the_last_hundred_episodes_that_report_them():
    statistics = EpisodeStatistics()
    assert {*statistics.means().values()} == {None}
    for number in range(150):
        rare = {"rare": number / 2} if number % 50 == 7 else {}
        add(statistics, 0, 0.0, number=float(number), **rare)
    found = statistics.means()
    assert found["episode_length_mean"] == 2
    assert found["env/number"] == 99.5
    assert found["env/rare"] == pytest.approx((7 + 57 + 107) / 6)
    assert statistics.count == 150
