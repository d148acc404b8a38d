"""A run for each of several seeds; tests/extras/tools/test_report.py has whole ones."""

import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ppo.components import Components
from ppo.config.config import Config
from ppo.config.settings import settings_of
from ppo.errors import ConfigError, Interrupted
from ppo.extras.tools import seeds
from ppo.extras.tools.parallel_runs import RunFailed
from ppo.extras.tools.seeds import train_seeds
from ppo.monitor import all_callbacks

FLAGS = "--env_name=CartPole-v1 --preset=none --num_workers=0 --eval_episodes=0 --report=False"


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


def test_the_flags_that_continue_all_seeds_can_be_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(jobs: object, at_once: int, ending: str) -> None:
        raise Interrupted(signal.SIGTERM, ending)

    monkeypatch.setattr(seeds, "run_jobs", stop)
    folder = tmp_path / "mein Lauf"
    given = {"env_name": "a.py:Arm", "seeds": 2, "run_dir": str(folder)}
    with pytest.raises(Interrupted) as caught:
        train_seeds(given, Config(seeds=2, run_dir=str(folder)), num_workers=1)
    words = shlex.split(str(caught.value).removesuffix(" continues").partition(": ")[2])
    flags = [word for word in words if word.startswith("--")]
    assert flags == ["--env_name=a.py:Arm", "--seeds=2", f"--run_dir={folder}", "--resume=auto"]


def test_seeds_are_for_the_command_line() -> None:
    settings = settings_of(Config(env_name="CartPole-v1", seeds=2))
    with pytest.raises(ConfigError, match="--seeds=2"):
        all_callbacks(Components(settings))
