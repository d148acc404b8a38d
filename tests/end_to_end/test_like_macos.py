"""The trainer without what only Linux has, as on macOS, where nobody has run it yet."""

import os
from pathlib import Path

import pytest

from ppo import Config, train
from tests.end_to_end.test_stop import spawned
from tests.running import (
    CARTPOLE,
    ROOT,
    metrics,
    nothing_left,
    num_rows,
    run_main,
    start,
    wait_until,
)

LIKE_MACOS = {**os.environ, "PYTHONPATH": f"{ROOT / 'tests' / 'like_macos'}:{ROOT}"}
FLAGS = (
    *("--env_name=CartPole-v1", "--preset=none", "--num_envs=4", "--num_steps=64"),
    *("--num_workers=2", "--learning_rate=1e-3", "--eval_episodes=2"),
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
    trainer = start(*endless, env=LIKE_MACOS)
    wait_until(lambda: num_rows(folder) > 5, trainer)
    assert len(spawned(trainer.pid)) >= 2
    trainer.kill()
    trainer.communicate(timeout=60)
    assert any(nothing_left(trainer.pid) for _ in range(60))  # it takes longer there
    before = num_rows(folder)
    run_there(f"--resume={folder}", f"--stop_when=iteration>={before + 5}")
    assert num_rows(folder) == before + 5
