"""metrics.csv: whole rows, whatever happens."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ppo.run.loggers.metrics_file import MetricsFile
from ppo.run.reader import read_rows


class Run(SimpleNamespace):
    """A folder that remembers events."""

    def __init__(self, path: Path) -> None:
        super().__init__(path=path, events=[])

    def event(self, kind: str, message: str) -> None:
        self.events.append((kind, message))


def row(iteration: int) -> dict[str, Any]:
    return {"iteration": iteration, "step": 10 * iteration, "seconds": 0.5}


def test_rows_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    file = MetricsFile(Run(tmp_path), [])
    for iteration in (1, 2, 3):
        file.write({**row(iteration), "loss": iteration / 3, "nothing": None})
    file.close()
    text = (tmp_path / "metrics.csv").read_text()
    assert text == (
        "iteration,step,seconds,loss,nothing\n1,10,0.5,0.333333,\n2,20,0.5,0.666667,\n3,30,0.5,1,\n"
    )
    assert [found["iteration"] for found in read_rows(Run(tmp_path), 2)] == ["1", "2"]


def test_a_resumed_run_continues_after_the_rows_that_were_saved(tmp_path: Path) -> None:
    first = MetricsFile(Run(tmp_path), [])
    for iteration in (1, 2, 3):
        first.write({**row(iteration), "loss": 1.5})
    second = MetricsFile(Run(tmp_path), read_rows(Run(tmp_path), 1))
    second.write({**row(2), "loss": 2.5, "new": 3})
    text = (tmp_path / "metrics.csv").read_text()
    assert text == "iteration,step,seconds,loss,new\n1,10,0.5,1.5,\n2,20,0.5,2.5,3\n"


def test_a_torn_row_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("iteration,step,seconds\n1,2,3\n2")
    assert [found["iteration"] for found in read_rows(Run(tmp_path), 9)] == ["1"]
    assert read_rows(Run(tmp_path / "nowhere"), 9) == []


def test_rows_wait_in_memory_for_a_file_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    file = MetricsFile(run, [])

    def fail(*_: Any) -> Any:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", fail)
        for iteration in (1, 2):
            file.write({"iteration": iteration})
    file.write({"iteration": 3})
    assert (tmp_path / "metrics.csv").read_text() == "iteration\n1\n2\n3\n"
    assert [kind for kind, _ in run.events] == ["log_delayed"]
    assert "disk full" in run.events[0][1]
