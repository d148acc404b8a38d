"""Loggers of one's own, by --logger=module:Class."""

import json
import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ppo import Logger
from ppo.config.config import Config
from ppo.errors import ConfigError
from ppo.run.loggers.logger import own_loggers
from ppo.system.files import read_json_lines
from tests.running import BRIEF, Call, metrics, run_main

HERE = "tests.run.test_own_logger"


@dataclass
class Lines(Logger):
    """Append a line of JSON for each call to a file."""

    path: str
    fails_in: int = 0

    def __post_init__(self) -> None:
        self.write("start", self.first_step)

    def write(self, *content: Any) -> None:
        with open(self.path, "a") as file:
            file.write(json.dumps(content) + "\n")

    def log(self, metrics: dict[str, Any], histograms: Any) -> None:
        self.write("log", metrics, sorted(histograms.values) if histograms else [])
        if metrics["iteration"] == self.fails_in:
            raise SystemExit("no\nnetwork")

    def summarize(self, summary: Any) -> None:
        self.write("summarize", summary.steps)

    def close(self) -> None:
        self.write("close")


def calls_in(path: Path) -> list[list[Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_a_logger_of_ones_own_sees_the_run_and_cannot_end_it(tmp_path: Path, call: Call) -> None:
    good, bad = (f"--logger={HERE}:Lines(path='{tmp_path}/{name}'" for name in ("good", "bad"))
    folder = tmp_path / "run"
    flags = (f"{good})", f"{bad}, fails_in=3)", "--histogram_every=4", "--verbose=0")
    done = run_main(*BRIEF, *flags, f"--run_dir={folder}")
    said = "no network; training continues without it"
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"warning: {bad}, fails_in=3): {said}\n"
    start, *logged, summarized, closed = calls_in(tmp_path / "good")
    assert (start, summarized, closed) == (["start", 0], ["summarize", 2560], ["close"])
    for (_, row, histograms), kept in zip(logged, metrics(folder), strict=True):
        assert {name: float(f"{row[name]:.6g}") for name, x in kept.items() if x} == {
            name: float(x) for name, x in kept.items() if x
        }
        assert ("advantages" in histograms) == (row["iteration"] % 4 == 0)
    assert [kind for kind, *_ in calls_in(tmp_path / "bad")] == ["start", "log", "log", "log"]
    events = read_json_lines(folder / "events.jsonl")
    (failed,) = (event for event in events if event["kind"] == "logger_failed")
    assert "SystemExit: no" in failed["traceback"]

    more = (f"--resume={folder}", "--total_steps=2816", "--report=False")
    code, _, error = call(*more)
    assert code == 3
    assert f"config.json would import {HERE}:Lines(path=" in error
    assert "if you trust it, repeat '--logger=" in error
    assert call(*more, "--logger=none")[::2] == (0, "")  # none is imported
    assert len(calls_in(tmp_path / "good")) == 13
    assert call(*more, "--total_steps=3072", f"{good})")[::2] == (0, "")
    again = calls_in(tmp_path / "good")[13:]
    assert [kind for kind, *_ in again] == ["start", "log", "summarize", "close"]
    assert again[0] == ["start", 2816]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nowhere:Lines", "cannot be imported (ModuleNotFoundError: No module named 'nowhere')"),
        (f"{HERE}:Path('x')", "must be a class derived from ppo.Logger"),
        (f"{HERE}:Lines", "missing a required argument: 'path'; it takes path, fails_in"),
        (f"{HERE}:Lines(path=x)", "give Python literals as arguments"),
    ],
)
def test_a_wrong_logger_is_named_before_anything_is_made(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        own_loggers(Config(logger=text))
    assert str(caught.value).startswith(f"--logger={text.partition('(')[0]}")
    assert said in str(caught.value)


def test_the_example_fills_a_project_of_trackio(tmp_path: Path) -> None:
    pytest.importorskip("trackio")
    logger = "--logger=examples.own_logger:Trackio(project='cartpole')"
    outside = {**os.environ, "TRACKIO_DIR": str(tmp_path / "trackio")}
    folder = tmp_path / "run"
    done = run_main(*BRIEF, logger, f"--run_dir={folder}", env=outside)
    assert done.returncode == 0, done.stderr
    with sqlite3.connect(tmp_path / "trackio" / "cartpole.db") as database:
        found = database.execute("select step, metrics from metrics where run_name = 'run'")
        rows = [(step, json.loads(content)) for step, content in found]
    logged = {step: row for step, row in rows if "loss" in row}
    kept = {int(row["step"]): float(row["loss"]) for row in metrics(folder)}
    assert {step: float(f"{row['loss']:.6g}") for step, row in logged.items()} == kept
    assert any("evaluation_mean" in row for _, row in rows)
