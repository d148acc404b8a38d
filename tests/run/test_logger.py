"""Loggers: metrics.csv always, others as long as they work."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ppo.run.loggers.logger
from ppo.config.config import Config
from ppo.run.loggers.logger import Histograms, Logger, Loggers
from ppo.run.summary import RunSummary
from tests.running import metrics, run_summary


class Run(SimpleNamespace):
    """A folder that remembers events."""

    def __init__(self, path: Path) -> None:
        super().__init__(path=path, events=[])

    def event(self, kind: str, message: str, traceback: str) -> None:
        self.events.append((kind, message))


class Recorder(Logger):
    """Remember the names of the calls."""

    calls: list[str]

    def __post_init__(self) -> None:
        self.calls = [f"start after {self.first_step}"]
        Recorder.last = self

    def log(self, metrics: dict[str, Any], histograms: Histograms | None) -> None:
        self.calls.append(f"log {metrics['iteration']}")

    def summarize(self, summary: RunSummary) -> None:
        self.calls.append(f"summarize {summary.steps}")

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")


class Failing(Recorder):
    """Raise in the second iteration."""

    def log(self, metrics: dict[str, Any], histograms: Histograms | None) -> None:
        super().log(metrics, histograms)
        if metrics["iteration"] == 2:
            raise RuntimeError("out of order")


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A registry in which tensorboard is a logger of this file."""
    loggers = {"tensorboard": "tests.run.test_logger:Recorder"}
    monkeypatch.setattr(ppo.run.loggers.logger, "LOGGERS", loggers)
    return loggers


def rows(*iterations: int) -> list[dict[str, Any]]:
    return [{"iteration": str(iteration), "step": str(10 * iteration)} for iteration in iterations]


CONFIG = Config(logger="tensorboard", verbose=0)


def test_an_interrupt_aborts_loggers(tmp_path: Path, registry: dict[str, str]) -> None:
    with pytest.raises(KeyboardInterrupt), Loggers(CONFIG, Run(tmp_path), []):
        raise KeyboardInterrupt
    assert Recorder.last.calls == ["start after 0", "abort"]


def test_a_logger_gets_every_iteration_and_the_summary_and_knows_where_a_run_goes_on(
    tmp_path: Path, registry: dict[str, str]
) -> None:
    with Loggers(CONFIG, Run(tmp_path), [], rows(1, 2)) as loggers:
        loggers.log({"iteration": 3, "step": 30})
        loggers.finish(run_summary(steps=30))
    assert Recorder.last.calls == ["start after 20", "log 3", "summarize 30", "close"]
    assert [row["step"] for row in metrics(tmp_path)] == ["10", "20", "30"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [("tests.run.test_logger:Failing", "out of order"), ("nowhere:Logger", "No module named")],
)
def test_a_logger_that_raises_or_cannot_be_imported_is_dropped_and_named(
    path: str, reason: str, tmp_path: Path, registry: dict[str, str]
) -> None:
    registry["tensorboard"] = path
    run = Run(tmp_path)
    with Loggers(CONFIG, run, []) as loggers:
        for iteration in (1, 2, 3):
            loggers.log({"iteration": iteration})
    ((kind, message),) = run.events
    assert kind == "logger_failed"
    assert message.startswith("--logger=tensorboard: ")
    assert reason in message
    assert message.endswith("; training continues without it")
    assert len(metrics(tmp_path)) == 3


def test_the_console_is_a_logger_unless_it_is_to_be_quiet(
    tmp_path: Path, registry: dict[str, str]
) -> None:
    registry["console"] = "tests.run.test_logger:Recorder"
    for logger, verbose, names in (
        ("none", 1, []),
        ("console", 0, []),
        ("tensorboard", 1, ["console", "tensorboard"]),
    ):
        config = Config(logger=logger, verbose=verbose)
        with Loggers(config, Run(tmp_path), []) as loggers:
            assert sorted(loggers.loggers) == names
