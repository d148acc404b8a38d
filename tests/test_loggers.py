"""Loggers: metrics.csv, whole rows whatever happens; others, without which training goes on."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ppo.loggers import Logger, MetricsFile, read_rows
from tests.running import iterate, rows, running, train
from tests.worlds import Constant


def log(path: Path, *rows: dict[str, Any], after: int = 0) -> str:
    """Write rows after those of a number of iterations that are there; return metrics.csv."""
    run: Any = SimpleNamespace(folder=SimpleNamespace(path=path), iteration=after)
    file = MetricsFile()
    file.on_start(run)
    for run.metrics in rows:
        file.on_iteration(run)
    return (path / "metrics.csv").read_text()


def row(iteration: int, **more: Any) -> dict[str, Any]:
    return {"iteration": iteration, "seconds": 0.5, **more}


def test_rows_and_new_columns_are_written_and_repeated_iterations_removed(tmp_path):
    text = log(tmp_path, row(1, loss=1 / 3), row(2, loss=None), row(3, loss=1.0))
    assert text == "iteration,seconds,loss\n1,0.5,0.333333\n2,0.5,\n3,0.5,1\n"
    text = log(tmp_path, row(2, loss=2.5), row(3, loss=1.5, new=7), after=1)
    assert text == "iteration,seconds,loss,new\n1,0.5,0.333333,\n2,0.5,2.5,\n3,0.5,1.5,7\n"
    path = tmp_path / "metrics.csv"
    path.write_text(text + "4,0.5,1")  # as a kill leaves it
    assert [x["iteration"] for x in read_rows(path)] == [*"123"]
    assert log(tmp_path, row(4), after=3) == f"{text}4,0.5,,\n"


class Broken(Logger):
    def on_iteration(self, run: Any) -> None:
        raise OSError("no network")


def test_a_logger_that_raises_is_dropped_with_a_warning(tmp_path):
    with running(Constant, tmp_path, [Broken()]) as run:
        iterate(run, 3)
    assert (tmp_path / "notes.txt").read_text().count("no network") == 1
    assert len(rows(tmp_path)) == 3


def test_tensorboard_shows_each_row_once_also_of_a_resumed_run(tmp_path):
    path = "tensorboard.backend.event_processing.event_accumulator"
    events = pytest.importorskip(path).EventAccumulator(str(tmp_path))
    train(Constant, tmp_path, 10, logger="tensorboard")
    train(Constant, tmp_path, 12, logger="tensorboard")
    events.Reload()
    assert [x.step for x in events.Scalars("loss")] == [64 * i for i in range(1, 13)]
    assert {x.value for x in events.Scalars("episode_return_mean")} == {10}
    assert [x.step for x in events.Histograms("episode_returns")] == [640]


def test_weights_and_biases_gets_settings_rows_and_the_result(tmp_path, monkeypatch):
    logged: dict[int, Any] = {}
    log = lambda values, step: logged.update({step: values})  # noqa: E731
    run: Any = SimpleNamespace(log=log, summary={}, finish=lambda: logged.update(end=True))
    monkeypatch.setattr("wandb.init", lambda **options: vars(run).update(options) or run)
    train(Constant, tmp_path / "runs" / "a", 3, logger="wandb", eval_episodes=2)
    assert (run.name, run.id[:2], run.config["num_envs"]) == ("a", "a-", 4)
    assert [*logged] == [64, 128, 192, "end"]
    assert logged[64]["episode_return_mean"] == run.summary["evaluation_return_mean"] == 10
