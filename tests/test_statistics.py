"""Statistics of episodes."""

import pytest

from ppo.envs.episodes import Episode
from ppo.statistics import EpisodeStatistics


def add(statistics: EpisodeStatistics, environment: int, total: float, **metrics: float) -> None:
    statistics.add(Episode(0, environment, total, 2, metrics))


def test_metrics_are_averaged_over_the_last_hundred_episodes_that_report_them():
    statistics = EpisodeStatistics(1)
    for number in range(150):
        rare = {"rare": number / 2} if number % 50 == 7 else {}
        add(statistics, 0, 0.0, number=float(number), **rare)
    found = statistics.means()
    assert found["episode_length_mean"] == 2
    assert found["env/number"] == 99.5
    assert found["env/rare"] == pytest.approx((7 + 57 + 107) / 6)
    assert len(statistics.returns) == 100
    assert statistics.count == 150


def test_each_environment_counts_alike_and_there_is_no_mean_until_each_has_ended():
    """Else it would be one of short episodes."""
    statistics = EpisodeStatistics(2)
    for _ in range(30):
        add(statistics, 0, 1.0, score=1.0)
        assert {*statistics.means().values()} == {None}
    add(statistics, 1, 3.0)
    assert statistics.means()["episode_return_mean"] == 2.0
    assert statistics.means()["env/score"] == 1.0
    for number in range(200):
        add(statistics, number % 2, 10.0)
    assert statistics.means()["episode_return_mean"] == 10.0
