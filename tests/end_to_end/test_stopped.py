"""Processes that stop or end while others start them or talk to them, by main.py."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.running import (
    ROOT,
    TINY,
    events,
    metrics,
    nothing_left,
    num_rows,
    run_main,
    start,
    wait_until,
)

SHORT = tuple(
    f"--{name}={value}" for name, value in {**TINY, "verbose": 1, "preset": "none"}.items()
)


@pytest.fixture(scope="module")
def long_episodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose open episodes do not fit in a pipe."""
    folder = tmp_path_factory.mktemp("runs") / "long"
    done = run_main(
        *SHORT,
        "--env_name=tests.misbehaving:Wide",
        "--num_steps=1024",
        "--total_steps=4096",
        f"--run_dir={folder}",
    )
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def resuming(folder: Path, tmp_path: Path, *flags: str) -> tuple[subprocess.Popen, Path]:
    """Resume a copy of a run whose environments now hang as workers make them."""
    copy = tmp_path / "run"
    subprocess.run(["cp", "-r", folder, copy], check=True)
    hang = {"where": "constructor", "what": "hang_in_c", "within": "worker"}
    flags = ("--total_steps=8192", "--num_workers=1", "--env_name=tests.misbehaving:Wide", *flags)
    environment = {**os.environ, "MISBEHAVE": json.dumps(hang)}
    return start(f"--resume={copy}", *flags, env=environment), copy


@pytest.mark.slow
def test_a_worker_that_hangs_before_it_reads_long_episodes_is_noticed(
    long_episodes: Path, tmp_path: Path
) -> None:
    process, _ = resuming(long_episodes, tmp_path, "--reset_timeout=2")
    _, errors = process.communicate(timeout=30)
    said = "worker 0 hung in the start of environment 0: over 2 s (--reset_timeout)"
    assert (process.returncode, errors.splitlines()[-1:]) == (1, [f"error: {said}"])
    assert nothing_left(process.pid)


@pytest.mark.slow
def test_a_signal_is_heard_while_a_worker_does_not_read(
    long_episodes: Path, tmp_path: Path
) -> None:
    process, folder = resuming(long_episodes, tmp_path)
    wait_until(lambda: events(folder, "resumed"), process)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=10)
    assert (process.returncode, errors.count("\n")) == (143, 1), errors
    assert nothing_left(process.pid)


@pytest.mark.slow
def test_a_large_network_is_not_evaluated_by_a_process_that_is_stopped(tmp_path: Path) -> None:
    process = start(
        *SHORT,
        "--total_steps=16000",
        "--eval_episodes=2",
        "--hidden_size=256",
        "--step_timeout=1",
        "--reset_timeout=1",
        f"--run_dir={tmp_path}",
    )
    wait_until(lambda: num_rows(tmp_path) > 2, process)
    (isolated,) = spawned(process.pid)
    os.kill(isolated, signal.SIGSTOP)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "evaluation hung in the close of environment CartPole-v1: over 1 s" in errors
    assert nothing_left(process.pid)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_workers", "inference", "at"),
    [(2, "worker", 1), (2, "learner", 1), (1, "worker", 0), (1, "worker", 2)],
)
def test_a_pause_of_the_whole_job_changes_nothing(
    tmp_path: Path, num_workers: int, inference: str, at: int
) -> None:
    flags = (
        *(*SHORT, "--env_name=tests.starting:Slow", "--total_steps=32", "--verbose=0"),
        *("--step_timeout=1.5", "--reset_timeout=60", "--eval_episodes=2", "--eval_max_steps=8"),
        *(f"--num_workers={num_workers}", f"--inference={inference}"),
    )
    whole = run_main(*flags, f"--run_dir={tmp_path / 'whole'}")
    assert (whole.returncode, whole.stderr) == (0, "")
    folder = tmp_path / "run"
    process = start(*flags, f"--run_dir={folder}")
    if at == 0:  # in the first look
        wait_until(lambda: len(spawned(process.pid)) == 1, process)
        time.sleep(1)
    else:  # in the second rollout; in the evaluation
        wait_until(lambda: num_rows(folder) >= at, process)
        time.sleep(0.3)
    os.killpg(process.pid, signal.SIGSTOP)
    time.sleep(2.5)
    os.killpg(process.pid, signal.SIGCONT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert metrics(folder) == metrics(tmp_path / "whole")
    assert not events(folder, "worker_lost")


@pytest.mark.slow
@pytest.mark.parametrize("who", ["worker", "trainer"])
def test_a_pause_of_one_process_is_noticed_where_it_is_a_workers(tmp_path: Path, who: str) -> None:
    folder = tmp_path / "run"
    flags = (*SHORT, "--env_name=tests.starting:Slow", "--total_steps=32", "--num_workers=1")
    process = start(*flags, "--step_timeout=1.5", f"--run_dir={folder}")
    wait_until(lambda: num_rows(folder) >= 1, process)
    worker = spawned(process.pid)[-1]
    stopped = worker if who == "worker" else process.pid
    os.kill(stopped, signal.SIGSTOP)
    time.sleep(2.5)
    if who == "trainer":
        os.kill(stopped, signal.SIGCONT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert len(events(folder, "worker_lost")) == (who == "worker")


def spawned(parent: int) -> list[int]:
    """The processes that multiprocessing has started."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    lines = {int(child): Path(f"/proc/{child}/cmdline").read_text() for child in children}
    return [child for child, line in lines.items() if "--multiprocessing-fork" in line]


END_AS_IT_STARTS = """
import multiprocessing.util, os, signal, sys

start = multiprocessing.util.spawnv_passfds

def start_and_end(path, line, handles):
    process = start(path, line, handles)
    if "--multiprocessing-fork" in line:
        os.kill(os.getpid(), signal.SIGKILL)
    return process

multiprocessing.util.spawnv_passfds = start_and_end
"""


def test_a_process_whose_parent_is_killed_as_it_starts_prints_nothing(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(END_AS_IT_STARTS)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = run_main(*SHORT, f"--run_dir={tmp_path / 'run'}", env=environment)
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")


DESCRIPTORS = """
import os, tempfile
from ppo import train
from tests.running import TINY

def descriptors():
    folder = "/proc/self/fd"
    return sorted(os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder) if fd != listing)

def run(**flags):
    with tempfile.TemporaryDirectory() as folder:
        flags = {**TINY, "total_steps": 64, "eval_episodes": 1, "preset": "none", **flags}
        try:
            train(flags.pop("env_name"), run_dir=f"{folder}/run", **flags)
        except Exception as error:
            return type(error).__name__
"""


def counts(*runs: str) -> list[Any]:
    """Train in one process; return what each run raised, and the number of open files after it."""
    code = f"""
import json, os, tempfile
from ppo import train
from tests.running import TINY

def run(**flags):
    with tempfile.TemporaryDirectory() as folder:
        flags = {{**TINY, "total_steps": 64, "eval_episodes": 1, "preset": "none", **flags}}
        try:
            train(flags.pop("env_name"), run_dir=folder + "/run", **flags)
        except Exception as error:
            return type(error).__name__

if __name__ == "__main__":
    print(json.dumps([[run(**flags), len(os.listdir("/proc/self/fd"))] for flags in {runs}]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
