"""metrics.csv: whole rows, whatever happens."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ppo.errors import SaveFailed
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


def test_a_new_name_becomes_a_column_that_is_empty_in_earlier_rows(tmp_path: Path) -> None:
    file = MetricsFile(Run(tmp_path), [])
    for iteration in (1, 2):
        file.write({**row(iteration), "loss": None})
    file.write({**row(3), "env/a": 0.25, "loss": 2.0})
    file.write({**row(4), "env/a": 0.5, "env/b": 1.0})
    file.write(row(5))
    text = "iteration,step,seconds,loss,env/a,env/b\n1,10,0.5,,,\n2,20,0.5,,,\n3,30,0.5,2,0.25,\n"
    assert (tmp_path / "metrics.csv").read_text() == text + "4,40,0.5,,0.5,1\n5,50,0.5,,,\n"
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.csv"]
    resumed = MetricsFile(Run(tmp_path), read_rows(Run(tmp_path), 3))
    resumed.write({**row(4), "env/a": 0.5, "env/c": 3.0, "env/b": 1.0})
    lines = (tmp_path / "metrics.csv").read_text().splitlines()
    assert lines[0] == "iteration,step,seconds,loss,env/a,env/b,env/c"
    assert lines[3:] == ["3,30,0.5,2,0.25,,", "4,40,0.5,,0.5,1,3"]


def test_no_row_is_lost_where_the_disk_is_full_as_a_column_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    file = MetricsFile(run, [])
    file.write(row(1))

    def fail(*_: Any) -> Any:
        raise OSError("disk full")

    assert file.file
    with monkeypatch.context() as patch:
        opened = file.file.file
        patch.setattr(file.file, "file", SimpleNamespace(write=fail))
        file.write(row(2))
        patch.setattr(Path, "write_text", fail)
        file.write({**row(3), "new": 1.0})
        file.write(row(4))
        with pytest.raises(SaveFailed, match="disk full"):
            file.finish()
        patch.setattr(file.file, "file", opened)
    assert (tmp_path / "metrics.csv").read_text() == "iteration,step,seconds\n1,10,0.5\n"
    file.write({**row(5), "new": 2.0})
    file.write({**row(6), "new": 3.0})
    file.finish()
    lines = (tmp_path / "metrics.csv").read_text().splitlines()
    assert lines[0] == "iteration,step,seconds,new"
    assert [line.split(",")[0] for line in lines[1:]] == ["1", "2", "3", "4", "5", "6"]
    assert [line.split(",")[3] for line in lines[1:]] == ["", "", "1", "", "2", "3"]
    assert [kind for kind, _ in run.events] == ["log_delayed"]


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
