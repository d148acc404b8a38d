"""What environments, and other code of the user's, may do to a run, through main.py."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.running import metrics, run_main

SMALL = (
    "--preset=none",
    "--num_envs=2",
    "--num_steps=16",
    "--total_steps=96",
    "--num_workers=1",
    "--num_minibatches=1",
    "--num_epochs=1",
    "--report=False",
    "--eval_episodes=2",
    "--step_timeout=1.5",
    "--reset_timeout=3",
)
NAME = "tests.misbehaving:Misbehaving"


def train(folder: Path, *flags: str, code: int = 0, **misbehaviour: Any) -> tuple[str, list[Any]]:
    """Train in an environment that misbehaves; return what is on stderr, and the run's events."""
    env = (f"--env_name={NAME}", f"--env_kwargs={json.dumps(misbehaviour)}")
    done = run_main(*SMALL, *env, *flags, f"--run_dir={folder}")
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr or code == 1
    events = folder / "events.jsonl"
    return done.stderr, [json.loads(line) for line in events.read_text().splitlines()] if (
        events.exists()
    ) else []


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("where", "what", "said"),
    [
        ("constructor", "exit", f"environment {NAME} raised SystemExit: 0"),
        ("constructor", "interrupt", "the environment raised KeyboardInterrupt"),
        pytest.param(
            "constructor",
            "hang",
            f"the first look hung in the start of environment {NAME}: over 3 s",
            marks=pytest.mark.slow,
        ),
        ("reset", "raise", f"environment {NAME} raised RuntimeError: a wheel came off"),
        ("reset", "shape", "its observation is float32 (3,) [0.0, 0.0, 0.0], not float32 (4,)"),
        pytest.param(
            "reset",
            "hang_in_c",
            f"the first look hung in the reset of environment {NAME}: over 3 s",
            marks=pytest.mark.slow,
        ),
        ("step", "segv", f"the first look was killed by SIGSEGV in the step of environment {NAME}"),
        ("step", "stop", f"the first look hung in the step of environment {NAME}: over 1.5 s"),
        ("step", "nan", "is not finite"),
        ("step", "reward_nan", "its reward is nan, not one finite number"),
    ],
)
def test_what_an_environment_does_at_first_is_named_at_once(
    tmp_path: Path, where: str, what: str, said: str
) -> None:
    errors, events = train(tmp_path / "run", code=1, where=where, what=what)
    assert said in errors.splitlines()[-1]
    assert errors.splitlines()[-1].startswith("error: ")
    assert not events  # nothing was begun


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    "what", ["raise", "exit", pytest.param("hang", marks=pytest.mark.slow), "segv"]
)
def test_an_evaluation_that_fails_is_named_and_nothing_else_suffers(
    tmp_path: Path, what: str
) -> None:
    kind = {"where": "step", "what": what, "within": "isolated", "after": 1}
    errors, events = train(tmp_path / "run", "--eval_every=2", **kind)
    failed = [event for event in events if event["kind"] == "evaluation_failed"]
    assert len(failed) == 2  # after the second iteration, and at the end; the process was replaced
    assert NAME in failed[0]["message"]
    assert errors.count("warning: ") == 2
    assert len(metrics(tmp_path / "run")) == 3
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["evaluation"]["episodes"] == 0


@pytest.mark.slow
def test_a_close_that_raises_is_said_once_and_ends_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    errors, events = train(run, "--eval_every=1", where="close", what="raise")
    said = f"environment {NAME}: it raised RuntimeError as it was closed: a wheel came off"
    assert errors == f"warning: {said}\n"
    assert [event["message"] for event in events if event["message"]] == [said]
    assert json.loads((run / "summary.json").read_text())["evaluation"]["episodes"] == 2
    done = run_main("evaluate", str(run), f"--env_name={NAME}", "--episodes=2")
    assert (done.returncode, done.stderr) == (0, "")  # it was said in training


@pytest.mark.slow
@pytest.mark.parametrize(
    "what",
    ["float64", "list", "reward"],
)
def test_sloppiness_is_converted_with_one_warning(tmp_path: Path, what: str) -> None:
    where = {"where": "step", "what": what}
    errors, _ = train(tmp_path / "run", **where)
    assert errors.count("warning: ") == 1
    assert f"warning: environment {NAME}: its " in errors
    checked = run_main("check", f"--env_name={NAME}", f"--env_kwargs={json.dumps(where)}")
    assert checked.returncode == 0
    assert errors.strip() in checked.stdout


@pytest.mark.slow
def test_a_check_says_what_is_wrong_as_training_does(tmp_path: Path) -> None:
    where = {"where": "step", "what": "nan"}
    errors, _ = train(tmp_path / "run", code=1, **where)
    checked = run_main("check", f"--env_name={NAME}", f"--env_kwargs={json.dumps(where)}")
    assert checked.returncode == 1
    assert checked.stderr.splitlines()[-1] == errors.splitlines()[-1]


@pytest.mark.slow
def test_an_exit_in_the_trainers_process_is_a_lost_worker(tmp_path: Path) -> None:
    kind = {"where": "step", "what": "exit", "within": "trainer", "after": 40}
    errors, events = train(tmp_path / "run", "--num_workers=0", code=1, **kind)
    lost = [event for event in events if event["kind"] == "worker_lost"]
    assert len(lost) == 4
    assert f"environment 0 of {NAME} raised SystemExit: 0" in errors.splitlines()[-1]
    assert (tmp_path / "run" / "checkpoints" / "last.safetensors").exists()


@pytest.mark.slow
def test_an_evaluation_of_endless_episodes_ends(tmp_path: Path) -> None:
    run = tmp_path / "run"
    flags = ("--env_name=tests.misbehaving:Endless", "--eval_max_steps=50", "--verbose=1")
    done = run_main(*SMALL, *flags, f"--run_dir={run}")
    assert done.returncode == 0, done.stderr
    said = "50.0 +/- 0.0 over 2 deterministic episodes, 2 of them cut off by --eval_max_steps"
    assert f"evaluation: {said}" in done.stdout
    result = json.loads((run / "summary.json").read_text())["evaluation"]
    assert result["unfinished"] == 2
    assert result["lengths"] == [50, 50]
    trusted = f"--env_name={flags[0].partition('=')[2]}"
    done = run_main("evaluate", str(run), trusted, "--episodes=3", "--max_steps=70")
    assert "return 70.0 +/- 0.0" in done.stdout
    assert "3 episodes were cut off after 70 steps" in done.stdout


@pytest.mark.slow
def test_an_observation_without_numbers_is_refused(tmp_path: Path) -> None:
    done = run_main(*SMALL, "--env_name=tests.misbehaving:Nothing", f"--run_dir={tmp_path / 'r'}")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "observes Box([], [], (0,), float32)" in done.stderr
