"""Runs read from files that are whole, damaged or missing."""

import json
from pathlib import Path

import numpy as np
import pytest

from ppo.errors import ConfigError
from ppo.run.loggers.metrics_file import MetricsFile
from ppo.run.reader import read_rows, read_run
from tests.run.test_metrics_file import Run, row

TABLE = "iteration,step,seconds,episode_return_mean\n1,10,0.5,\n2,20,1.0,3.5\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of two iterations."""
    (tmp_path / "config.json").write_text(json.dumps({"env_name": "E", "seed": 3}))
    (tmp_path / "metrics.csv").write_text(TABLE)
    return tmp_path


def test_a_run_is_read_as_settings_and_arrays(folder: Path) -> None:
    run = read_run(folder)
    assert run.folder == folder
    assert run.config == {"env_name": "E", "seed": 3}
    np.testing.assert_array_equal(run.metrics["step"], [10, 20])
    np.testing.assert_array_equal(run.metrics["episode_return_mean"], [np.nan, 3.5])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", None),
        ("config.json", "{"),
        ("metrics.csv", "iteration,step,seconds,episode_return_mean\n"),
        ("metrics.csv", "step,seconds\n1,2\n"),
        ("metrics.csv", TABLE + "3,x,1,1\n"),
        ("metrics.csv", TABLE + '"3"3,30,1,1\n'),
    ],
)
def test_what_is_no_run_is_refused(name: str, content: str | None, folder: Path) -> None:
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    with pytest.raises(ConfigError, match=r"cannot read the run in .+ \(.+\): give a run's"):
        read_run(folder)


def test_a_table_has_as_many_columns_as_a_run_has_written(folder: Path) -> None:
    (folder / "metrics.csv").unlink()
    names = [f"mine/{number:06d}" for number in range(120_000)]  # lines of more than a megabyte
    file = MetricsFile(Run(folder), [])
    for iteration in (1, 2):
        file.write({**row(iteration), "episode_return_mean": 1.0, **dict.fromkeys(names, 0.5)})
    file.close()
    run = Run(folder)
    assert [found["step"] for found in read_rows(run, 9)] == ["10", "20"]
    assert not run.events
    np.testing.assert_array_equal(read_run(folder).metrics[names[-1]], [0.5, 0.5])


def test_a_table_that_does_not_fit_into_memory_is_refused_and_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ppo.run.reader.physical_memory", lambda: 500)
    said = "it would take more than half of this machine's memory"
    for read in (lambda: read_run(folder), lambda: read_rows(Run(folder), 9)):
        with pytest.raises(ConfigError, match=said):
            read()
    assert (folder / "metrics.csv").read_text() == TABLE


def test_rows_up_to_an_iteration_are_read_without_those_that_were_torn(folder: Path) -> None:
    with (folder / "metrics.csv").open("a") as file:
        file.write("3,30,1.5,4\n4,40")
    assert [row["step"] for row in read_rows(Run(folder), 2)] == ["10", "20"]
    assert [row["step"] for row in read_rows(Run(folder), 9)] == ["10", "20", "30"]
    (folder / "metrics.csv").unlink()
    assert read_rows(Run(folder), 9) == []
