"""A run for each of several seeds; tests/extras/tools/test_report.py has whole ones."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ppo.components import Components
from ppo.config.config import Config
from ppo.config.settings import settings_of
from ppo.errors import ConfigError
from ppo.extras.tools import seeds
from ppo.extras.tools.parallel_runs import RunFailed
from ppo.extras.tools.seeds import train_seeds
from ppo.monitor import all_callbacks
from tests.running import ROOT

FLAGS = "--env_name=CartPole-v1 --preset=none --num_workers=0 --eval_episodes=0 --report=False"


def test_the_exit_code_of_a_failed_seed_is_that_of_its_run() -> None:
    assert RunFailed(Path("s1"), 3).exit_code == 3
    assert RunFailed(Path("s1"), -signal.SIGKILL).exit_code == 137


def test_each_seed_has_the_same_flags_and_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    class Ended:
        """A process that has failed."""

        returncode = 1

        def __init__(self, command: list[str], **options: object) -> None:
            started.append(command)

        def poll(self) -> int:
            return 1

    monkeypatch.setattr(subprocess, "Popen", Ended)
    monkeypatch.setattr(seeds, "available_cores", lambda: 6)
    monkeypatch.setattr(sys, "argv", ["/somewhere/ppo/__main__.py"])
    given = {"seeds": "3", "seed": "7", "name": "mine", "gamma": "0.9", "run_dir": str(tmp_path)}
    flags = {**given, "num_workers": "2"}
    with pytest.raises(RunFailed, match="s7 ended with exit code 1"):
        train_seeds(flags, Config(**flags), num_workers=2)
    assert len(started) == 3  # side by side, so begun before one had failed
    for seed, command in zip((7, 8, 9), started, strict=True):
        assert command[:3] == [sys.executable, "-m", "ppo"]
        own = [f"--seed={seed}", f"--run_dir={tmp_path / f's{seed}'}", f"--name=mine-s{seed}"]
        assert {*own, "--seeds=1", "--gamma=0.9", "--num_workers=2"} == {*command[3:]}


def test_a_single_run_cannot_be_resumed_by_several_seeds(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--resume and --seeds: give one of them"):
        train_seeds({}, Config(seeds=2, resume=str(tmp_path)), num_workers=1)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is not empty, and no run is overwritten"):
        train_seeds({}, Config(seeds=2, run_dir=str(tmp_path)), num_workers=1)


@pytest.mark.slow
def test_a_signal_reaches_the_runs_of_all_seeds(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ppo", *FLAGS.split(), "--seeds=2", "--seed=3"]
    process = subprocess.Popen(
        [*command, "--total_steps=100000000", f"--run_dir={tmp_path / 'runs'}"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    rows = tmp_path / "runs" / "s3" / "metrics.csv"
    deadline = time.monotonic() + 60
    while not rows.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGTERM)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 143
    assert "error: SIGTERM after step " in errors
    assert "error: SIGTERM stopped the runs of all seeds" in errors


def test_seeds_are_for_the_command_line() -> None:
    settings = settings_of(Config(env_name="CartPole-v1", seeds=2))
    with pytest.raises(ConfigError, match="--seeds=2"):
        all_callbacks(Components(settings))
