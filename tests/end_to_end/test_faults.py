"""Faults of environments, workers, numbers, disks and services around a run, by main.py in real
processes; signals are in test_stop.py, files in test_untrusted_files.py."""

import json
import os
import re
import resource
import signal
import socket
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.kills import RUNS, check_resume
from ppo.run.checkpoint import load
from tests.running import (
    events,
    metrics,
    nothing_left,
    num_rows,
    run_main,
    saved,
    start,
    wait_until,
)

ITERATION = 4 * 32
SMALL = (
    "--num_envs=4",
    "--num_workers=2",
    "--num_steps=32",
    "--num_minibatches=2",
    "--num_iterations=6",
    f"--total_steps={6 * ITERATION}",
    "--eval_episodes=0",
    "--preset=none",
    "--checkpoint_every=2",
)
FAULT = "--env_name=tests.faults:Fault"
STEP = "in the step of environment [0-3]"
ENVIRONMENT = "environment [0-3] of tests.faults:Fault"
RAISED = f"{ENVIRONMENT} raised"
INVALID = f"{ENVIRONMENT}:"
HUNG = rf"worker [01] hung {STEP}: over 1 s \(--step_timeout\)"
CAUSES = {
    "kill": f"worker [01] was killed by SIGKILL {STEP}",
    "segv": f"worker [01] was killed by SIGSEGV {STEP}",
    "exit": f"worker [01] ended with exit code 3 {STEP}",
    "raise": f"{RAISED} RuntimeError: a wheel came off",
    "nan": rf"{INVALID} its observation float32 \(4,\) \[nan, nan, nan, nan\] is not finite",
    "four_tuple": f"{INVALID} its step returned .*, which is not five results",
    "outside": f"{INVALID} its observation .* is outside of Box",
    **dict.fromkeys(("hang", "spin", "stop"), HUNG),
}
SECONDS_TO_REPLACE = 10  # 3 on a machine of one's own
MISBEHAVING = "tests.misbehaving:Misbehaving"
BRIEF = (
    *("--preset=none", "--num_envs=2", "--num_steps=16", "--total_steps=96", "--num_workers=1"),
    *("--num_minibatches=1", "--num_epochs=1", "--eval_episodes=2"),
    *("--step_timeout=1.5", "--reset_timeout=3"),
)


def fault(tmp_path: Path, kinds: str, **options: Any) -> list[str]:
    """A small run in which faults happen."""
    about = {"fault": kinds, "marker": str(tmp_path / "marker"), **options}
    return [FAULT, *SMALL, f"--env_kwargs={json.dumps(about)}", f"--run_dir={tmp_path / 'run'}"]


def misbehaving(folder: Path, *flags: str, code: int = 0, **about: Any) -> str:
    """Train in an environment that misbehaves in one call; return what is on stderr."""
    env = (f"--env_name={MISBEHAVING}", f"--env_kwargs={json.dumps(about)}")
    done = run_main(*BRIEF, *env, *flags, f"--run_dir={folder}")
    assert done.returncode == code, done.stderr
    return done.stderr


def iterations(folder: Path) -> list[int]:
    return [int(row["iteration"]) for row in metrics(folder)]


# Environments and workers.


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("kinds", "flags"),
    [
        ("kill,raise,nan", []),
        ("segv,exit,four_tuple", []),
        ("hang,spin,stop", ["--step_timeout=1"]),
        ("outside", ["--strict_spaces"]),
    ],
)
def test_a_worker_that_fails_or_hangs_is_replaced(
    tmp_path: Path, kinds: str, flags: list[str]
) -> None:
    """Each fault is noticed within a second and named, and the run goes on."""
    folder, timeout = tmp_path / "run", int("hang" in kinds)
    done = run_main(*fault(tmp_path, kinds, step=20 + 20 * timeout), *flags)
    assert done.returncode == 0, done.stderr
    assert iterations(folder) == [1, 2, 3, 4, 5, 6]
    lost, replaced = events(folder, "worker_lost"), events(folder, "worker_replaced")
    for number, kind in enumerate(kinds.split(",")):
        matching = [event for event in lost if re.match(CAUSES[kind], event["cause"])]
        assert matching, lost
        event = matching[number if timeout else 0]  # to hang looks alike, however it is done
        noticed = datetime.fromisoformat(event["time"]).timestamp()
        happened = float((tmp_path / f"marker.{kind}").read_text())
        assert -0.001 <= noticed - happened < timeout + 1, kind
    assert len(lost) == len(replaced) == len(kinds.split(","))
    assert max(event["seconds"] for event in replaced) < SECONDS_TO_REPLACE
    assert metrics(folder)[-1]["faults/worker_lost"] == str(len(lost))


def test_episodes_that_had_ended_count_although_their_worker_is_lost(tmp_path: Path) -> None:
    """Four episodes of 20 steps end before step 30; four more as the rollout is collected again."""
    flags = ("--num_workers=1", "--num_iterations=1")
    done = run_main(*fault(tmp_path, "raise", step=30), *flags)
    assert done.returncode == 0, done.stderr
    (row,) = metrics(tmp_path / "run")
    assert (row["faults/worker_lost"], row["episodes"], row["episode_length_mean"]) == (
        *("1", "8", "20"),
    )


def test_the_end_after_too_many_losses_says_what_to_do(tmp_path: Path) -> None:
    done = run_main(*fault(tmp_path, "raise", always=True), "--max_losses=0")
    assert done.returncode == 1
    said = f"workers were lost 1 times within ten minutes, most recently because {CAUSES['raise']}"
    assert re.match(f"error: {said}.*--max_losses.*wrapper", done.stderr.splitlines()[-1])
    assert "Traceback" not in done.stderr
    assert "a wheel came off" in events(tmp_path / "run", "worker_lost")[0]["traceback"]


@pytest.mark.slow
def test_a_worker_that_fails_too_often_ends_the_run(tmp_path: Path) -> None:
    done = run_main(*fault(tmp_path, "kill", always=True), "--max_losses=2")
    assert done.returncode == 1
    said = f"workers were lost 3 times within ten minutes, most recently because {CAUSES['kill']}"
    assert re.match(f"error: {said}; if memory is short", done.stderr.splitlines()[-1])
    last = load(tmp_path / "run" / "checkpoints" / "last.safetensors")
    assert last["iteration"] == num_rows(tmp_path / "run")


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("where", "what", "said"),
    [
        ("constructor", "exit", f"environment {MISBEHAVING} raised SystemExit: 0"),
        ("constructor", "interrupt", "the environment raised KeyboardInterrupt"),
        ("reset", "raise", f"environment {MISBEHAVING} raised RuntimeError: a wheel came off"),
        ("reset", "shape", "its observation is float32 (3,) [0.0, 0.0, 0.0], not float32 (4,)"),
        ("reset", "hang_in_c", "the first look hung in the reset of environment {}: over 3 s"),
        ("step", "segv", "the first look was killed by SIGSEGV in the step of environment {}"),
        ("step", "stop", "the first look hung in the step of environment {}: over 1.5 s"),
        ("step", "nan", "is not finite"),
    ],
)
def test_what_an_environment_does_at_first_is_named_at_once(
    tmp_path: Path, where: str, what: str, said: str
) -> None:
    code = 2 if what in ("shape", "nan") else 1
    error = misbehaving(tmp_path / "run", code=code, where=where, what=what).splitlines()[-1]
    assert said.format(MISBEHAVING) in error
    assert error.startswith("error: ")
    assert not (tmp_path / "run").exists()
    if what == "nan":
        about = json.dumps({"where": where, "what": what})
        checked = run_main("check", f"--env_name={MISBEHAVING}", f"--env_kwargs={about}")
        assert (checked.returncode, checked.stderr.splitlines()) == (2, [error])


@pytest.mark.slow
def test_what_fails_in_a_worker_before_its_first_step_ends_the_run(tmp_path: Path) -> None:
    errors = misbehaving(tmp_path / "run", code=1, where="reset", what="raise", within="worker")
    assert 'raise RuntimeError("a wheel came off")' in errors
    said = f"error: environment 0 of {MISBEHAVING} raised RuntimeError: a wheel came off"
    assert errors.splitlines()[-1] == said


@pytest.mark.slow
def test_observations_outside_of_the_space_are_warned_of_once(tmp_path: Path) -> None:
    done = run_main(*fault(tmp_path, "outside", always=True))
    assert done.returncode == 0, done.stderr
    said = r"warning: environment (\d) has shown an observation outside"
    assert sorted(re.findall(said, done.stderr)) == [*"0123"]
    assert len(done.stderr.splitlines()) == 4
    outside = 4 * (6 * 32 - 39)
    assert int(metrics(tmp_path / "run")[-1]["faults/observation_outside"]) == outside


@pytest.mark.slow
@pytest.mark.parametrize("what", ["float64", "list", "reward"])
def test_sloppiness_is_converted_with_one_warning(tmp_path: Path, what: str) -> None:
    where = {"where": "step", "what": what}
    errors = misbehaving(tmp_path / "run", **where)
    assert errors.count("warning: ") == 1
    assert f"warning: environment {MISBEHAVING}: its " in errors
    checked = run_main("check", f"--env_name={MISBEHAVING}", f"--env_kwargs={json.dumps(where)}")
    assert checked.returncode == 0
    assert errors.strip() in checked.stdout


@pytest.mark.slow_but_first
@pytest.mark.parametrize("what", ["raise", "hang", "segv"])
def test_an_evaluation_that_fails_is_named_and_nothing_else_suffers(
    tmp_path: Path, what: str
) -> None:
    run = tmp_path / "run"
    kind = {"where": "step", "what": what, "within": "isolated", "after": 1}
    errors = misbehaving(run, "--eval_every=2", **kind)
    failed = events(run, "evaluation_failed")
    assert len(failed) == 2  # after the second iteration, and at the end; the process was replaced
    assert MISBEHAVING in failed[0]["message"]
    assert errors.count("warning: ") == 2
    assert len(metrics(run)) == 3
    assert json.loads((run / "summary.json").read_text())["evaluation"]["episodes"] == 0


@pytest.mark.slow
def test_a_close_that_raises_is_said_once_and_ends_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    errors = misbehaving(run, "--eval_every=1", where="close", what="raise")
    said = f"environment {MISBEHAVING}: it raised RuntimeError as it was closed: a wheel came off"
    assert errors == f"warning: {said}\n"
    assert json.loads((run / "summary.json").read_text())["evaluation"]["episodes"] == 2
    done = run_main("evaluate", str(run), f"--env_name={MISBEHAVING}", "--episodes=2")
    assert (done.returncode, done.stderr) == (0, "")  # it was said in training


@pytest.mark.slow
def test_an_evaluation_of_endless_episodes_ends(tmp_path: Path) -> None:
    endless = "--env_name=tests.misbehaving:Endless"
    flags = (endless, "--eval_max_steps=50", f"--run_dir={tmp_path}")
    done = run_main(*BRIEF, *flags)
    assert done.returncode == 0, done.stderr
    said = "50.0 +/- 0.0 over 2 deterministic episodes, 2 of them cut off by --eval_max_steps"
    assert f"evaluation: {said}" in done.stdout
    result = json.loads((tmp_path / "summary.json").read_text())["evaluation"]
    assert (result["unfinished"], result["lengths"]) == (2, [50, 50])
    done = run_main("evaluate", str(tmp_path), endless, "--episodes=3", "--max_steps=70")
    assert "return 70.0 +/- 0.0" in done.stdout
    assert "3 episodes were cut off after 70 steps" in done.stdout


# Numbers, disks and services.


@pytest.mark.slow
def test_gradient_steps_that_are_not_finite_are_left_out_and_counted(tmp_path: Path) -> None:
    done = run_main(*fault(tmp_path, ""), "--model=tests.faulty_models:NanTwice", "--num_epochs=4")
    assert done.returncode == 0, done.stderr
    said = "2 gradient steps of iteration 2 were skipped: their loss or gradient was not finite"
    assert done.stderr == f"warning: {said}\n"
    rows = metrics(tmp_path / "run")
    assert [int(row["skipped_steps"]) for row in rows] == [0, 2, 0, 0, 0, 0]
    assert [int(row["gradient_steps"]) for row in rows] == [8, 6, 8, 8, 8, 8]
    assert [int(row["faults/step_skipped"]) for row in rows] == [0, 2, 2, 2, 2, 2]
    assert [event["message"] for event in events(tmp_path / "run", "step_skipped")] == [said]


@pytest.mark.slow
def test_three_gradient_steps_in_a_row_that_are_not_finite_end_the_run_before_them(
    tmp_path: Path,
) -> None:
    flags = ("--model=tests.faulty_models:NanForever", "--num_epochs=4")
    done = run_main(*fault(tmp_path, ""), *flags)
    assert done.returncode == 1
    said = "in iteration 2 weights, or 3 gradients in a row, were not finite"
    assert done.stderr.startswith(f"error: {said}"), done.stderr
    assert load(saved(tmp_path / "run")[-1])["iteration"] == 1
    assert iterations(tmp_path / "run") == [1]


@pytest.mark.slow
def test_a_loss_that_is_not_finite_ends_the_run_and_is_never_saved(tmp_path: Path) -> None:
    done = run_main(*fault(tmp_path, ""), "--learning_rate=1e30", "--checkpoint_every=1")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert all(line.startswith(("warning: ", "error: ")) for line in lines)
    assert "not finite" in lines[-1]
    assert saved(tmp_path / "run")
    for path in saved(tmp_path / "run"):
        tensors = [value for value in load(path).values() if isinstance(value, torch.Tensor)]
        assert len(tensors) > 8
        assert all(tensor.isfinite().all() for tensor in tensors)


@pytest.mark.slow
def test_a_full_disk_is_warned_of_while_training_continues(tmp_path: Path) -> None:
    # Enough for a checkpoint of the beginning, but not for Adam's moments beside it.
    limits = (300_000, 300_000)
    done = run_main(
        *fault(tmp_path, ""), "--hidden_size=128",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits),
    )  # fmt: skip
    folder = tmp_path / "run"
    assert done.returncode == 1
    *warnings, last = done.stderr.splitlines()
    assert len(warnings) >= 2
    said = r"the checkpoint of step \d+ cannot be written to .*File too large"
    assert all(re.match(f"warning: {said}", warning) for warning in warnings)
    said = r"the last checkpoint cannot be written to .*File too large.*the newest is .*0+\.s"
    assert re.match(f"error: {said}", last)
    assert iterations(folder) == [1, 2, 3, 4, 5, 6]
    (newest,) = saved(folder)
    assert load(newest)["step"] == 0
    left = {path.name for path in (folder / "checkpoints").iterdir()}
    assert left == {newest.name, "last.safetensors"}
    assert int(metrics(folder)[-1]["faults/checkpoint_failed"]) >= 1


@pytest.mark.slow
def test_a_folder_in_use_is_not_entered(tmp_path: Path) -> None:
    process = start(*fault(tmp_path, "hang"))
    wait_until((tmp_path / "marker.hang").exists, process)
    config = (tmp_path / "run" / "config.json").read_bytes()
    for flag in ("run_dir", "resume"):
        done = run_main(FAULT, *SMALL, f"--{flag}={tmp_path / 'run'}")
        assert done.returncode == 4, done.stderr
        assert f"is in use by process {process.pid} on {socket.gethostname()}" in done.stderr
        assert done.stderr.count("\n") == 1
    assert (tmp_path / "run" / "config.json").read_bytes() == config
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["5ec2e7" * 6 + "abcd", ""])
def test_training_does_not_need_weights_and_biases(tmp_path: Path, key: str) -> None:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    secret = {"WANDB_API_KEY": key} if key else {}
    about = {"WANDB_BASE_URL": "http://127.0.0.1:9", "HOME": str(tmp_path), **secret}
    done = run_main(*fault(tmp_path, ""), "--logger=wandb", env={**outside, **about})
    assert done.returncode == 0, done.stderr
    assert "warning: --logger=wandb: " in done.stderr
    assert iterations(tmp_path / "run") == [1, 2, 3, 4, 5, 6]
    if key:
        files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
        assert not [path for path in files if key.encode() in path.read_bytes()]
        assert key not in done.stdout + done.stderr


# Resuming what was killed.


PONG = (
    "--env_name=PongNoFrameskip-v4 --num_envs=2 --num_steps=16 --num_minibatches=1 "
    "--total_steps=256 --checkpoint_every=2 --num_workers=2 --model=cnn_small --hidden_size=64"
)


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    "run",
    ["--env_name=CartPole-v1 --num_workers=2 --total_steps=20480 --checkpoint_every=3", PONG],
)
def test_a_killed_run_resumes_as_if_it_never_stopped(tmp_path: Path, run: str) -> None:
    arguments = [*run.split(), "--preset=none", "--eval_episodes=0"]
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    done = run_main(*arguments, f"--run_dir={whole}")
    assert done.returncode == 0, done.stderr
    process = start(*arguments, f"--run_dir={cut}")
    wait_until(lambda: num_rows(cut) >= 4, process)
    process.kill()
    process.communicate(timeout=60)
    assert nothing_left(process.pid)
    done = run_main(f"--resume={cut}")
    assert (done.returncode, done.stderr) == (0, "")
    assert 0 < events(cut, "resumed")[0]["step"] < int(metrics(cut)[-1]["step"])
    assert metrics(cut) == metrics(whole)
    assert [path.name for path in saved(cut)] == [path.name for path in saved(whole)]
    assert saved(cut)[-1].read_bytes() == saved(whole)[-1].read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("env_name", RUNS)
def test_runs_killed_at_any_moment_resume_as_if_they_never_stopped(env_name: str) -> None:
    assert check_resume(env_name, runs=6, side_by_side=2, minutes=60)["as_wanted"] == 6


@pytest.mark.slow
def test_a_run_is_not_resumed_as_another(tmp_path: Path) -> None:
    assert run_main(*fault(tmp_path, "")).returncode == 0

    def content() -> dict[Path, bytes]:
        files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "lock"]
        return {path: path.read_bytes() for path in files}

    before = content()
    for flags, said in [
        ([], f"would import tests.faults:Fault: if you trust it, repeat {FAULT}"),
        (["--env_name=CartPole-v1"], "would import tests.faults:Fault"),
        ([FAULT, "--hidden_size=32"], "hidden_size=64, not 32"),
        ([FAULT, "--num_envs=2"], "num_envs=4, not 2"),
    ]:
        done = run_main(f"--resume={tmp_path / 'run'}", *flags)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
        assert said in done.stderr
        assert content() == before
