"""What ranks report of their episodes, counted together."""

from pathlib import Path

from ppo.callbacks.statistics import EpisodeStatistics
from ppo.envs.worker import Episode
from tests.extras.distributed.test_distributed import Two
from tests.running import make_components
from tests.test_monitor import SMALL, watch


def test_episodes_of_all_processes_count_in_the_order_of_their_steps(tmp_path: Path) -> None:
    theirs = [Episode(1, 2, 4.0, 2, {"score": 4.0}), Episode(5, 3, 8.0, 2, {"score": 8.0})]
    parts = make_components("Counting-v0", **SMALL)
    monitor, _, _ = watch(parts, tmp_path)
    parts.peers = Two((theirs, [(5, "observation_outside", 2)], [3]))
    monitor.episodes = EpisodeStatistics(4)
    rollout = parts.rollout
    mine = [Episode(3, 1, 6.0, 2, {"score": 6.0})]
    rollout.info = rollout.info._replace(
        episodes=mine, faults={0: {}, 1: {"observation_outside": 3}}
    )
    reports = parts.gather_reports(rollout.info)
    monitor._count(reports)
    assert [episode.step for episode in reports.episodes] == [1, 3, 5]
    state = monitor.episodes.state_dict()
    assert state["episodes.metrics"] == {"score": [6.0, 4.0, 8.0]}  # by environments
    assert state["episodes.counts"]["env/score"] == [0, 1, 1, 1]
    assert reports.absent == [3]
    assert monitor.episodes.means()["env/score"] is None  # environment 0 has ended none
    assert reports.faults == [(1, "observation_outside", 3), (5, "observation_outside", 2)]
