"""The trainer's internals that benchmarks replace or measure still exist."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness import in_fresh_process
from benchmarks.internals import measure_worker, patch
from ppo.config.config import Config
from tests.running import ROOT, metrics

FLAGS = (
    "--env_name=CartPole-v1",
    "--preset=none",
    "--num_envs=4",
    "--num_steps=32",
    "--num_iterations=3",
    "--eval_episodes=0",
    "--logger=none",
    "--report=False",
    "--checkpoint_every=1000",
)


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_run_without_safeguards_learns_the_same(num_workers: int, tmp_path: Path) -> None:
    for name, module in (("whole", "main"), ("bare", "benchmarks.internals")):
        flags = [*FLAGS, f"--num_workers={num_workers}", f"--run_dir={tmp_path / name}"]
        command = [sys.executable, "-m", module, *flags]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")
    assert metrics(tmp_path / "bare") == metrics(tmp_path / "whole")
    assert len(metrics(tmp_path / "bare")) == 3


@pytest.mark.slow
def test_the_parts_of_a_workers_time_are_measured() -> None:
    config = Config("CartPole-v1", num_envs=4, num_steps=32, num_workers=2)
    seconds = in_fresh_process(measure_worker, config, 0.1)
    assert seconds.keys() == {"environment", "inference"}
    assert 0 < min(seconds.values()) < 1


def test_what_no_longer_exists_cannot_be_replaced() -> None:
    with pytest.raises(AttributeError):
        patch(Config, "no_such_thing", None)
