"""Progress on the console, read as a user would."""

import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ppo.config.config import Config
from ppo.run.loggers.console import ConsoleLogger
from tests.running import ROOT, run_summary


def metrics(iteration: int, **values: Any) -> dict[str, Any]:
    """The metrics of an iteration of 1,024 steps."""
    return {
        "iteration": iteration,
        "step": 1024 * iteration,
        "steps_per_second": 2048.0,
        "episode_return_mean": None,
        "seconds_collecting": 0.3,
        "seconds_learning": 0.1,
        **values,
    }


def make(notes: tuple[str, ...] = (), path: str = "run", **values: Any) -> ConsoleLogger:
    config = Config(**{"num_envs": 8, "num_steps": 128, "total_steps": 10_240, **values})
    run: Any = SimpleNamespace(path=Path(path), told=[])
    run.event = lambda kind, message: run.told.append((kind, message))
    return ConsoleLogger(config, run, notes, first_step=0)


def test_the_first_and_the_last_iteration_have_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    logger = make(notes=("a note",))
    for iteration in range(1, 11):
        logger.log(metrics(iteration, approx_kl=0.0123), None)
    logger.close()
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "a note"
    assert [line.partition(",")[0] for line in lines] == ["step 1", "step 10"]
    assert lines[0].startswith("step 1,024 of 10,240, 2,048 steps/s, KL 0.012, 75% collecting")


def test_log_every_asks_for_lines_by_iterations(capsys: pytest.CaptureFixture[str]) -> None:
    logger = make(log_every=5)
    for iteration in range(1, 11):
        logger.log(metrics(iteration, episode_return_mean=12.34), None)
    logger.close()
    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    assert [line.split(" of ")[0] for line in lines] == ["step 5,120", "step 10,240"]
    assert "return 12.3" in lines[0]


def test_metrics_that_are_asked_for_are_in_each_line(capsys: pytest.CaptureFixture[str]) -> None:
    logger = make(log_every=1, show="success_rate,explained_variance,evaluation_return_mean")
    logger.log(metrics(1, explained_variance=0.25, evaluation_return_mean=None), None)
    logger.log(metrics(2, **{"explained_variance": 0.5, "env/success_rate": 0.875}), None)
    logger.close()
    first, second = filter(None, capsys.readouterr().out.splitlines())
    assert "success_rate -, explained_variance 0.25, evaluation_return_mean -, 75%" in first
    assert "steps/s, success_rate 0.875, explained_variance 0.5, " in second
    logger = make(log_every=1, show="env/success_rate")
    logger.log(metrics(1, **{"env/success_rate": 0.25}), None)
    logger.close()
    assert ", env/success_rate 0.25, " in capsys.readouterr().out


def test_an_evaluation_has_a_line_when_it_happens(capsys: pytest.CaptureFixture[str]) -> None:
    logger = make(log_every=100)
    logger.log(metrics(1, evaluation_return_mean=None), None)
    logger.log(metrics(2, evaluation_return_mean=12.34), None)
    logger.close()
    assert capsys.readouterr().out.split("\n")[-2] == "step 2,048: evaluation 12.3"


def test_steps_that_are_no_whole_rollouts_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    make(num_steps=100).close()
    assert "trains 9,600 steps, as whole rollouts of 800\n" in capsys.readouterr().out
    make(num_iterations=2).close()
    assert "whole rollouts" not in capsys.readouterr().out


def test_the_summary_says_how_good_the_policy_is_and_what_limits_speed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    Path("run", "report.html").touch()
    logger = make()
    logger.log(metrics(1), None)
    logger.summarize(run_summary(steps=1024, returns=[2.71, 3.71] * 10))
    logger.close()
    out = capsys.readouterr().out
    assert "evaluation: 3.2 +/- 0.5 over 20 deterministic episodes\n" in out
    assert "time: 75% collecting, 25% learning: environments and acting limit the speed\n" in out
    assert "files: run/metrics.csv, run/summary.json, run/report.html\n" in out
    assert "next: ppo evaluate run --episodes=100\n" in out


def test_the_next_commands_repeat_what_a_file_alone_is_not_trusted_to_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrappers = ["my_env.py:Slow(by=2)", "gymnasium.wrappers:ClipAction"]
    flags = ["--env_name=my_env.py:Reach", *(f"--wrapper={one}" for one in wrappers)]
    line = last_line(capsys, env_name="my_env.py:Reach", wrapper=wrappers)
    assert shlex.split(line)[1:] == ["ppo", "evaluate", "run", "--episodes=100", *flags]
    line = last_line(capsys, env_name="<Reach>", wrapper=wrappers[:1])
    call = "load_policy('run', Reach, wrapper=['my_env.py:Slow(by=2)']).evaluate(100)"
    assert line == f"next, in Python: {call}"


@pytest.mark.parametrize("folder", ["mein Lauf", "-x", "it's $1 & more", "a  b"])
@pytest.mark.parametrize(
    ("program", "words"),
    [
        (str(ROOT / "main.py"), ["python", "main.py"]),
        (str(ROOT / "ppo" / "__main__.py"), ["python", "-m", "ppo"]),
        ("/bin/ppo", ["ppo"]),
        ("main.py", ["ppo"]),  # of somebody else
    ],
)
def test_the_next_command_can_be_pasted_into_the_shell_that_started_this_one(
    folder: str,
    program: str,
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path if program == "main.py" else ROOT)
    monkeypatch.setattr(sys, "argv", [program])
    _, *line = shlex.split(last_line(capsys, path=folder))
    assert line[:-1] == [*words, "evaluate", line[-2]]
    assert line[-2].removeprefix("./") == folder
    assert not line[-2].startswith("-")


def last_line(capsys: pytest.CaptureFixture[str], **values: Any) -> str:
    """Return the last line about a run that has ended."""
    logger = make(**values)
    logger.summarize(run_summary(steps=1024, returns=[1.0]))
    logger.close()
    return capsys.readouterr().out.splitlines()[-1]
