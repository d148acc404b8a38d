"""Environments that start processes, and training in a process that multiprocessing forbids it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.running import ROOT, events, metrics, run_main
from tests.starting import KINDS

SMALL = (
    *("--preset=none", "--num_envs=2", "--num_steps=16", "--num_minibatches=1"),
    *("--num_epochs=1", "--total_steps=128", "--eval_episodes=2", "--verbose=0"),
)


def run(folder: Path, num_workers: int, *flags: str, **about: Any) -> None:
    """Train to the end without a word."""
    kwargs = f"--env_kwargs={json.dumps(about)}"
    name = "--env_name=tests.starting:Starting"
    workers = f"--num_workers={num_workers}"
    done = run_main(name, *SMALL, kwargs, workers, f"--run_dir={folder}", *flags)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("num_workers", "method", "call", "by"),
    [
        (1, None, "step", "process"),
        (0, None, "reset", "process"),
        *((1, "spawn", "init", by) for by in KINDS),
        (0, None, "step", "pool"),
    ],
)
def test_an_environment_may_start_a_process_by_any_means_in_any_call(
    tmp_path: Path, num_workers: int, method: str | None, call: str, by: str
) -> None:
    run(tmp_path / "run", num_workers, by=by, method=method, call=call)
    assert len(metrics(tmp_path / "run")) == 4


@pytest.mark.slow
def test_a_batch_may_be_one_of_processes(tmp_path: Path) -> None:
    rows = []
    for mode in ("sync", "async"):
        about = {"id": "CartPole-v1", "vectorization_mode": mode}
        run(tmp_path / mode, 1, "--env_name=gymnasium:make_vec", **about)
        rows.append(metrics(tmp_path / mode))
    assert rows[0] == rows[1]


@pytest.mark.slow
def test_what_a_hung_worker_has_started_ends_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    marker = tmp_path / "marker"
    about = {"by": "subprocess", "hang_at": 20, "marker": str(marker)}
    name = "--env_name=tests.starting:Starting"
    mark = {"PPO_TEST_STARTING": str(tmp_path)}
    done = run_main(
        name,
        *SMALL,
        f"--env_kwargs={json.dumps(about)}",
        *("--num_workers=1", "--step_timeout=2", f"--run_dir={folder}"),
        env={**os.environ, **mark},
        capture_output=False,  # else it would wait for all that have these pipes
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert done.returncode == 0
    assert len(events(folder, "worker_lost")) == 1
    assert marker.exists()
    assert nothing_has(f"PPO_TEST_STARTING={tmp_path}")


def nothing_has(variable: str) -> bool:
    """Whether soon no process has an environment variable."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if not any(map(variable.encode().__eq__, variables_of_all())):
            return True
        time.sleep(0.05)
    return False


def variables_of_all() -> list[bytes]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            found += path.read_bytes().split(b"\0")
        except OSError:
            continue
    return found


SCRIPT = """
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor

from ppo import load_policy, train
from tests.running import TINY

NAME = "tests.starting:Starting"


def work(task):
    number, num_workers = task
    folder = f"{sys.argv[1]}/{number}"
    flags = {**TINY, "env_name": NAME, "total_steps": 64, "num_workers": num_workers}
    done = train(flags.pop("env_name"), run_dir=folder, **flags)
    mean = load_policy(done.checkpoint, env_name=NAME).evaluate(1).mean
    assert multiprocessing.current_process().daemon == (sys.argv[2] == "pool")
    return mean > 0


if __name__ == "__main__":
    method = sys.argv[3]
    context = multiprocessing.get_context(method)
    with context.Pool(1) if sys.argv[2] == "pool" else ProcessPoolExecutor(1, context) as pool:
        print(*pool.map(work, [(0, 0), (1, 1)]))
"""


@pytest.mark.slow_but_first
@pytest.mark.parametrize(("kind", "method"), [("pool", "fork"), ("executor", "spawn")])
def test_train_and_evaluate_work_in_a_pool_of_processes(
    tmp_path: Path, kind: str, method: str
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py", str(tmp_path), kind, method]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "True True"), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [1, 0])
def test_a_forked_process_can_be_terminated_as_soon_as_it_is_started(
    tmp_path: Path, num_workers: int
) -> None:
    about = {"where": "step", "what": "start_process"}
    flags = ("--step_timeout=10", "--total_steps=32", "--eval_episodes=0")
    name = "--env_name=tests.misbehaving:Misbehaving"
    run(tmp_path / "run", num_workers, name, *flags, **about)
