"""Progress on the console, read as a user would."""

import re
import shlex
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ppo.config.config import Config
from ppo.envs.env_factories import as_env_name
from ppo.run.loggers import console
from ppo.run.loggers.console import ConsoleLogger
from tests.environments import Target
from tests.running import ROOT, run_summary


class Reach(Target):
    """An environment of one's own."""


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
    assert lines[0] == "step 1,024 of 10,240, 2,048 steps/s, KL 0.012, 75% collecting"
    assert lines[1].endswith(" s left")


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
    assert "evaluation: 3.21 +/- 0.500 over 20 deterministic episodes\n" in out
    assert "time: 75% collecting, 25% learning: environments and acting limit the speed\n" in out
    assert "files in run: metrics.csv, summary.json, report.html\n" in out
    assert "next: ppo evaluate run\n" in out


def test_the_next_commands_repeat_what_a_file_alone_is_not_trusted_to_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrappers = ["my_env.py:Slow(by=2)", "gymnasium.wrappers:ClipAction"]
    for env_name, given in (
        ("my_env.py:Reach", "my_env.py:Reach"),
        (as_env_name(Reach), f"{__name__}:Reach"),
        (as_env_name(lambda: Reach()), ""),
    ):
        line = last_line(capsys, env_name=env_name, wrapper=wrappers)
        if given:
            flags = [f"--env_name={given}", *(f"--wrapper={one}" for one in wrappers)]
            assert shlex.split(line)[1:] == ["ppo", "evaluate", "run", *flags]
        else:
            call = f"load_policy('run', env, wrapper={wrappers!r}).evaluate(episodes=100)"
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
    assert line[:-1] == [*words, "evaluate"]
    assert line[-1].removeprefix("./") == folder
    assert not line[-1].startswith("-")


def last_line(capsys: pytest.CaptureFixture[str], **values: Any) -> str:
    """Return the last line about a run that has ended."""
    logger = make(**values)
    logger.summarize(run_summary(steps=1024, returns=[1.0]))
    logger.close()
    return capsys.readouterr().out.splitlines()[-1]


def test_small_returns_have_digits_and_success_is_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    logger = make(log_every=1)
    logger.log(metrics(1, **{"episode_return_mean": -0.0123, "env/success_rate": 0.996}), None)
    summary = run_summary(steps=1024, returns=[-0.0312, -0.0516])
    summary.evaluation.env["success_rate"] = 0.5
    logger.summarize(summary)
    logger.close()
    out = capsys.readouterr().out
    assert ", return -0.0123, success 99.6%, 75% collecting" in out
    assert "evaluation: -0.0414 +/- 0.0102 over 2 deterministic episodes, success 50.0%\n" in out


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (60, "return -1,234.6, success 87.5%"),
        (80, "return -1,234.6, success 87.5%, 1,202,048 steps/s"),
        (160, "return .*, step 1,024 of 999,999,488, KL 0.012, 75% collecting"),
    ],
)
def test_bar_return_and_the_time_that_is_left_fit_on_a_terminal(
    width: int,
    expected: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": str(width)}.items():
        monkeypatch.setenv(name, value)
    logger = make(total_steps=1_000_000_000)
    own = {"episode_return_mean": -1234.56, "env/success_rate": 0.875}
    logger.log(metrics(1, approx_kl=0.0123, steps_per_second=1_202_048.0, **own), None)
    logger.close()  # which draws the bar once more
    drawn = re.split(r"\x1b\[2K|\r|\n", capsys.readouterr().out)
    lines = [re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", part) for part in drawn]
    (line, *_) = [line for line in lines if "return" in line]
    assert re.fullmatch(rf".{{14}} {expected} +(-|\d+):(--|\d\d):(--|\d\d) *", line)
    assert len(line.rstrip()) <= width


def test_a_long_first_iteration_is_said_before_it_is_over(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 0.05)
    logger = make()
    logger.first.join(10)
    logger.close()
    said = "the first iteration, of 1,024 steps, takes over 0.05 s\n"
    assert capsys.readouterr().out.endswith(said)
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 60)
    logger = make()
    logger.log(metrics(1), None)
    logger.first.join(10)
    assert not logger.first.is_alive()
    logger.close()
    assert "the first iteration" not in capsys.readouterr().out


def test_the_bar_says_that_a_signal_has_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    task: Any = SimpleNamespace(description="step 1,024")
    assert str(console.Doing().render(task)) == "step 1,024"
    monkeypatch.setattr(console.STOP, "received", signal.SIGINT)
    assert str(console.Doing().render(task)) == "stops after this iteration"
