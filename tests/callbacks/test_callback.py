"""Callbacks watch and steer a run, and what they do is the same after a kill and a resume."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ppo.run.checkpoint import LAST, load
from tests.running import BRIEF, assert_same, metrics, run_main

LEVELS = "--env_name=tests.hooks:Levels"
RISING = "--callback=tests.hooks:Rising"
ALWAYS = {"--checkpoint_every=2", "--total_steps=3072", "--num_workers=2"}  # twelve iterations


def brief(*flags: str, **options: Any) -> subprocess.CompletedProcess:
    return run_main(LEVELS, *BRIEF[1:], *flags, **options)


def calls(folder: Path) -> list[str]:
    return (folder / "calls.txt").read_text().splitlines()


def test_everything_is_called_in_its_order_and_a_run_can_be_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = brief("--callback=tests.hooks:Recorder", "--eval_every=2", f"--run_dir={folder}")
    assert done.returncode == 0, done.stderr
    assert calls(folder) == [
        "start 0",
        "iteration 1",
        "evaluation of 2 2",  # the trainer's own come first
        "iteration 2",
        "checkpoint 2",  # the best so far
        "iteration 3",
        "checkpoint 3",  # asked for
        "evaluation of 2 4",
        "iteration 4",
        *(["checkpoint 4"] if "checkpoint 4" in calls(folder) else []),
        "iteration 5",
        "checkpoint 5",
        "evaluation of 2 5",
        "end 5",
    ]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["stopped"] == "enough"
    assert summary["steps"] == 5 * 256
    assert "enough" in done.stdout


@pytest.mark.parametrize(
    "flag",
    [
        pytest.param("--inference=worker", marks=pytest.mark.slow),
        pytest.param("--inference=learner", marks=pytest.mark.slow),
    ],
)
def test_a_curriculum_that_is_killed_is_resumed_bit_for_bit(tmp_path: Path, flag: str) -> None:
    flags = [RISING, *sorted(ALWAYS), flag]
    whole = tmp_path / "whole"
    assert brief(*flags, f"--run_dir={whole}").returncode == 0
    levels = [float(row["env/level"]) for row in metrics(whole)]
    assert levels[0] == 0.0
    assert levels[-1] > 1.0
    killed = tmp_path / "killed"
    done = brief(*flags, f"--run_dir={killed}", env={**os.environ, "KILL_AT": "8"})
    assert done.returncode == -9
    again = run_main(f"--resume={killed}", LEVELS, RISING)
    assert again.returncode == 0, again.stderr
    assert "not exact" not in again.stdout + again.stderr
    assert metrics(killed) == metrics(whole)
    states = [load(folder / "checkpoints" / LAST) for folder in (whole, killed)]
    assert states[0]["callbacks.Rising.0.level"] == 4
    assert states[0]["env_attributes"] == {"level": 4}
    assert_same(states[0], states[1])
    # A policy is evaluated with the attributes that it had: at level 0, there are no rewards.
    evaluated = run_main("evaluate", str(killed), LEVELS, "--episodes=20")
    assert evaluated.returncode == 0, evaluated.stderr
    assert "return 0.0 " not in evaluated.stdout


def test_flags_change_from_the_next_iteration_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    slower = ("--callback=tests.hooks:Slower", "--learning_rate=1e-3", "--num_epochs=2")
    done = brief(*slower, "--total_steps=1024", "--num_minibatches=2", f"--run_dir={folder}")
    assert done.returncode == 0, done.stderr
    rows = metrics(folder)
    assert [float(row["learning_rate"]) for row in rows] == [1e-3, 1e-3, 1e-5, 1e-5]
    assert [row["gradient_steps"] for row in rows] == ["4", "4", "2", "2"]
    assert {row["refused"] for row in rows} == {"1"}
    assert load(folder / "checkpoints" / LAST)["config"]["learning_rate"] == 1e-5


@pytest.mark.slow
def test_attributes_are_set_by_name_where_there_is_no_set_training(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    name = "--env_name=tests.hooks:ByName"
    done = run_main(name, *BRIEF[1:], RISING, f"--run_dir={folder}")
    assert done.returncode == 0, done.stderr
    assert float(metrics(folder)[-1]["env/level"]) > 1.0


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("callback", "code", "message"),
    [
        ("Failing", 1, "error: callback Failing raised RuntimeError in on_iteration: a wheel came"),
        ("NonFinite", 1, "callback NonFinite raised ValueError in on_iteration: the metric mine"),
        ("Overwriting", 1, "raised ValueError in on_iteration: the metric step is the tra"),
        ("Missing", 2, "error: --callback=tests.hooks:Missing cannot be imported"),
        ("Levels", 2, "error: --callback=tests.hooks:Levels must be a class derived from ppo"),
    ],
)
def test_what_a_callback_does_wrong_is_named(
    tmp_path: Path, callback: str, code: int, message: str
) -> None:
    folder = tmp_path / "run"
    done = brief(f"--callback=tests.hooks:{callback}", f"--run_dir={folder}")
    assert done.returncode == code
    assert message in done.stderr
    if callback == "Failing":
        assert "a wheel came off" in done.stderr.split("error:")[0]  # its traceback
        assert load(folder / "checkpoints" / LAST)["iteration"] == 2


@pytest.mark.slow
def test_an_attribute_that_the_environment_lacks_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = run_main(*BRIEF, "--callback=tests.hooks:WrongAttribute", f"--run_dir={folder}")
    assert done.returncode == 2
    expected = "error: set_env(colour=red): the environment has neither set_training nor an attr"
    assert expected in done.stderr
    assert load(folder / "checkpoints" / LAST)["iteration"] == 1
