"""Seconds of a run and of an iteration's phases."""

import time

import pytest

from ppo.system.clock import Clock


def test_a_resumed_run_counts_the_seconds_before(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([100.0, 100.0, 103.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    assert Clock(earlier=7.0).elapsed == 10.0


def test_phases_follow_each_other_and_are_of_one_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 0.0, 1.0, 3.0, 7.0, 10.0, 11.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    clock = Clock()
    clock.begin_iteration()
    clock.end_phase("collecting")
    clock.end_phase("learning")
    assert clock.phases == {"collecting": 2.0, "learning": 4.0}
    clock.begin_iteration()
    clock.end_phase("collecting")
    assert clock.phases == {"collecting": 1.0}
