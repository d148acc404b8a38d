"""The trainer without what only Linux has, as on macOS, where nobody has run it yet."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.harness import num_rows
from ppo import Config, train
from tests.running import CARTPOLE, ROOT, command, metrics, run_main

LIKE_MACOS = {**os.environ, "PYTHONPATH": f"{ROOT / 'tests' / 'like_macos'}:{ROOT}"}
FLAGS = (
    "--env_name=CartPole-v1",
    "--preset=none",
    "--num_envs=4",
    "--num_steps=64",
    "--num_workers=2",
    "--learning_rate=1e-3",
    "--eval_episodes=2",
)


def run_there(*flags: str) -> None:
    """Run main.py as on macOS, to its end without a message on stderr."""
    done = run_main(*flags, env=LIKE_MACOS, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_run_has_the_same_bits(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    run_there(*FLAGS, "--total_steps=2048", f"--run_dir={there}")
    train(Config(**{**CARTPOLE, "eval_episodes": 2, "run_dir": str(here)}))
    assert metrics(there) == metrics(here)
    assert len(metrics(here)) == 8


@pytest.mark.slow
def test_workers_end_with_a_trainer_that_is_killed_and_the_run_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    endless = (*FLAGS, "--total_steps=100000000", "--checkpoint_every=5", f"--run_dir={folder}")
    with subprocess.Popen(
        command(*endless), cwd=ROOT, env=LIKE_MACOS, stdout=subprocess.DEVNULL
    ) as trainer:
        try:
            wait_for(lambda: num_rows(folder) > 5 or trainer.poll() is not None)
            workers = descendants(trainer.pid)
        finally:
            trainer.kill()
    assert len(workers) >= 2
    wait_for(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))
    before = num_rows(folder)
    run_there(f"--resume={folder}", f"--stop_when=iteration>={before + 5}")
    assert num_rows(folder) == before + 5


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300  # of a busy machine
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def descendants(process: int) -> list[int]:
    """The processes below one, as Linux lists them."""
    path = Path(f"/proc/{process}/task/{process}/children")
    found = [int(child) for child in path.read_text().split()]
    return found + [x for child in found for x in descendants(child)]
