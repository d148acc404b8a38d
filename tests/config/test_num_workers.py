"""The number of workers is one for each core, as far as there are environments."""

import json
import os
from pathlib import Path

import pytest

from ppo.config.config import Config
from ppo.config.settings import settings_of
from ppo.system.hardware import available_cores
from tests.running import run_main


@pytest.mark.parametrize("num_envs", [1, 64])
def test_auto_is_a_worker_for_each_core(num_envs: int) -> None:
    config = settings_of(Config(env_name="CartPole-v1", num_envs=num_envs)).config
    assert config.num_workers == min(num_envs, available_cores())


@pytest.mark.slow
def test_a_resumed_run_keeps_its_number_of_workers(tmp_path: Path) -> None:
    flags = "--env_name=CartPole-v1 --preset=none --num_envs=4 --num_steps=16 --total_steps=640"
    run = tmp_path / "run"
    done = run_main(*flags.split(), "--eval_episodes=0", f"--run_dir={run}", "--num_workers=1")
    assert done.returncode == 0, done.stderr
    on_all_cores = {"preexec_fn": lambda: os.sched_setaffinity(0, range(os.cpu_count() or 1))}
    done = run_main(f"--resume={run}", "--total_steps=768", "--verbose=2", **on_all_cores)
    assert done.returncode == 0, done.stderr
    assert "num_workers=1" in done.stdout.splitlines()
    assert json.loads((run / "config.json").read_text())["num_workers"] == 1
