"""The monitor counts, evaluates and warns, and changes nothing in training."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ppo.callbacks.statistics import MAX_METRICS, EpisodeStatistics
from ppo.components import Components
from ppo.envs.worker import Episode
from ppo.errors import SaveFailed
from ppo.monitor import Learned, Monitor, all_callbacks
from ppo.policy.policy import Policy
from ppo.run.reader import SUMMARY
from ppo.system.clock import Clock
from tests.running import make_components

SMALL = {
    "num_envs": 2,
    "num_steps": 16,
    "num_minibatches": 2,
    "hidden_size": 8,
    "normalize_observations": True,
    "normalize_rewards": True,
}


class Run(SimpleNamespace):
    """A run's folder that remembers events."""

    def __init__(self, path: Path) -> None:
        super().__init__(path=path, told=[])

    def event(self, kind: str, message: str = "", count: int = 1, **details: Any) -> None:
        self.told.append((kind, message, count))


def watch(parts: Components, folder: Path, **changed: Any) -> tuple[Monitor, Run, dict[str, Any]]:
    """Train for an iteration under a monitor; changed: metrics of the update to be replaced."""
    run = Run(folder)
    monitor = Monitor(parts, run, all_callbacks(parts))  # type: ignore[arg-type]
    clock = Clock()
    with parts.make_pool() as workers:
        rollout = parts.finish_collect(1, workers.collect(1))
        clock.end_phase("collecting")
        batch = parts.make_batch(rollout)
        metrics = parts.learner.update(batch, 1)
        clock.end_phase("learning")
        reports = parts.gather_reports(rollout.info)
        decision = monitor.after_update(
            Learned(rollout, batch, {**metrics, **changed}, reports), clock
        )
        return monitor, run, decision.metrics


def test_environments_that_begin_anew_as_a_run_is_resumed_are_waited_for(tmp_path: Path) -> None:
    monitor, _, _ = watch(make_components("Counting-v0", **SMALL), tmp_path)
    assert monitor.episodes.means()["episode_return_mean"] is not None
    monitor.note_lost_episodes([0, 1])
    monitor.episodes.add(Episode(0, 0, 0.0, 2, {"score": 1.0}))
    restored = EpisodeStatistics(2)
    restored.load_state_dict(monitor.episodes.state_dict())
    for statistics in (monitor.episodes, restored):
        means = statistics.means()
        assert {*means.values()} == {None}
        statistics.add(Episode(1, 1, 0.0, 2, {}))
        assert statistics.means()["env/score"] == 1.0


def test_an_agent_that_has_not_arrived_is_not_waited_for() -> None:
    statistics = EpisodeStatistics(3)
    statistics.add(Episode(0, 0, 1.0, 2, {}))
    statistics.waiting -= {2}
    assert statistics.means()["episode_return_mean"] is None
    statistics.add(Episode(1, 1, 3.0, 2, {}))
    assert statistics.means()["episode_return_mean"] == 2.0


def test_metrics_are_averaged_over_the_last_hundred_episodes_that_report_them() -> None:
    statistics = EpisodeStatistics()
    assert "episodes.metrics" not in statistics.state_dict()
    for number in range(150):
        metrics = {"number": float(number)}
        if number % 50 == 7:
            metrics["rare"] = number / 2
        statistics.add(Episode(0, 0, 0.0, 2, metrics))
    found = {"env/number": 99.5, "env/rare": (7 + 57 + 107) / 6}
    assert statistics.means() == {
        "episode_return_mean": 0.0,
        "episode_length_mean": 2.0,
        **found,
    }
    state = statistics.state_dict()
    restored = EpisodeStatistics()
    restored.load_state_dict(
        json.loads(json.dumps({**state, "episodes.recent": None}))
        | {"episodes.recent": state["episodes.recent"]}
    )
    for one in (statistics, restored):
        one.add(Episode(0, 0, 0.0, 2, {"number": 150.0, "new": 0.1}))
    assert restored.means() == statistics.means()
    assert restored.means()["env/number"] == 100.5
    assert state["episodes.metrics"]["number"][-1] == 149.0  # what was returned does not change


def test_each_environment_counts_alike() -> None:
    """The last 25 episodes of each of four: one has many short ones, and counts no more."""
    statistics = EpisodeStatistics(4)
    for environment, (count, value) in enumerate([(60, 1.0), (30, 2.0), (2, 3.0), (1, 6.0)]):
        for number in range(count):
            metrics = {"mine": value} if environment < 2 else {}
            total = value if number >= count - 25 else 100.0
            statistics.add(Episode(0, environment, total, 10 * environment, metrics))
    found = {"episode_return_mean": 3.0, "episode_length_mean": 15.0, "env/mine": 1.5}
    assert statistics.means() == found
    assert len(statistics.returns) == 25 + 25 + 2 + 1


def test_the_episodes_of_version_1_are_taken_to_have_ended_by_turns() -> None:
    statistics = EpisodeStatistics(2)
    recent = np.array([[1.0, 5.0], [2.0, 6.0], [3.0, 7.0]])
    statistics.load_state_dict(
        {"episodes": 3, "episodes.recent": recent, "episodes.metrics": {"mine": [1.0, 4.0]}}
    )
    found = {"episode_return_mean": 2.0, "episode_length_mean": 6.0, "env/mine": 2.5}
    assert statistics.means() == found


def test_too_many_names_of_metrics_are_ignored_with_one_warning(tmp_path: Path) -> None:
    monitor, run, _ = watch(make_components("Counting-v0", **SMALL), tmp_path)
    rollout = monitor.parts.rollout
    for start in (0, 50, 100):
        metrics = {f"name_{number}": 1.0 for number in range(start, start + 50)}
        rollout.info = rollout.info._replace(episodes=[Episode(0, 0, 0.0, 2, metrics)])
        monitor._count(monitor.parts.gather_reports(rollout.info))
    names = [name for name in monitor.episodes.recent if name.startswith("env/")]
    assert names == [f"env/name_{number}" for number in range(MAX_METRICS)]
    ((kind, message, _),) = run.told
    assert kind == "env_metrics"
    assert f"more than {MAX_METRICS} numbers by different names" in message


def test_a_summary_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    parts = make_components("Counting-v0", **SMALL, report=False, eval_episodes=0)
    monitor, _, _ = watch(parts, tmp_path)
    (tmp_path / SUMMARY).mkdir()
    with pytest.raises(SaveFailed, match=rf"{SUMMARY} cannot be written \(Is a directory\)"):
        monitor.finish(Clock())


def test_a_report_that_cannot_be_written_is_an_event(tmp_path: Path) -> None:
    parts = make_components("Counting-v0", **SMALL, report=True, eval_episodes=0)
    monitor, run, _ = watch(parts, tmp_path)
    monitor.finish(Clock())  # there is no config.json to read
    assert [kind for kind, _, _ in run.told] == ["report_failed"]


def test_the_same_policy_is_not_evaluated_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = make_components("Counting-v0", **SMALL, eval_episodes=2)
    monitor, _, _ = watch(parts, tmp_path)
    played: list[int] = []
    evaluate = Policy.evaluate

    def counted(self: Policy, episodes: int, *arguments: Any, **options: Any) -> Any:
        played.append(episodes)
        return evaluate(self, episodes, *arguments, **options)

    monkeypatch.setattr(Policy, "evaluate", counted)
    proof = monitor.run.evaluate()
    assert monitor.run.evaluate(2) == proof
    assert played == [2]
    monitor.run.set_env(metadata={})
    monitor.run.evaluate()
    monitor.run.evaluate(3)
    parts.iteration += 1
    monitor.run.evaluate(3)
    with torch.no_grad():
        parts.learner.weights += 1
    monitor.run.evaluate(3)
    assert played == [2, 2, 3, 3, 3]
