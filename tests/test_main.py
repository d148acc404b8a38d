"""Command lines: python main.py, python -m ppo and ppo, which do the same."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import ppo.__main__
from ppo.commands import all_commands
from ppo.envs.errors import WorkerError
from ppo.errors import CheckpointError, Interrupted, PPOError
from tests.running import ROOT, Call

SCRIPT = """import sys
from ppo.__main__ import main
if __name__ == "__main__":
    sys.exit(main())
"""  # as pip writes it for the console script
ENVIRONMENT = """
import sys
from multiprocessing import parent_process
from pathlib import Path

import gymnasium
import numpy as np


class Mine(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        return np.random.default_rng().uniform(size=2).astype(np.float32), {}

    def step(self, action):
        if parent_process():  # this is a worker process
            heavy = {"torch", "wandb", "rich", "matplotlib"} & sys.modules.keys()
            assert not heavy, heavy
            Path("worker").touch()
        return np.zeros(2, np.float32), 1.0, True, False, {}
"""


def program_of(way: str, folder: Path) -> list[str]:
    """The command that starts the trainer, in one of three ways."""
    if way == "script":
        (folder / "ppo-script").write_text(SCRIPT)
        return [str(folder / "ppo-script")]
    return {"main.py": [str(ROOT / "main.py")], "-m": ["-m", "ppo"]}[way]


@pytest.mark.slow_but_first
@pytest.mark.parametrize("way", ["main.py", "-m", "script"])
def test_every_way_to_start_finds_modules_in_the_current_folder_and_keeps_workers_light(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "own_module.py").write_text(ENVIRONMENT)
    flags = "--env_name=own_module:Mine --num_envs=2 --num_workers=2 --num_steps=8 --total_steps=32"
    command = [
        sys.executable,
        *program_of(way, tmp_path),
        *flags.split(),
        "--eval_episodes=0",
        "--report=False",
        f"--run_dir={tmp_path / 'run'}",
    ]
    done = subprocess.run(
        command, cwd=tmp_path / "here", capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "run" / "summary.json").exists()
    assert (tmp_path / "here" / "worker").exists()


def test_help_lists_every_command_with_a_sentence(call: Call) -> None:
    code, output, errors = call("--help")
    assert (code, errors) == (0, "")
    lines = [" ".join(line.split()) for line in output.splitlines()]
    for name, command in all_commands().items():
        assert f"{name} {command.about}" in lines
    assert "environment Environment and preprocessing" in lines


def test_help_of_training_takes_no_heavy_import() -> None:
    code = "import sys, main\nmain.main(['--help'])\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert not {"torch", "wandb", "rich", "matplotlib"} & {*done.stdout.splitlines()[-1].split()}


@pytest.mark.parametrize("start", ["CartPole-v1", "train CartPole-v1"])
def test_an_environment_may_stand_first(start: str, tmp_path: Path, call: Call) -> None:
    flags = "--preset=none --num_iterations=1 --num_workers=0 --eval_episodes=0 --report=False"
    folder = tmp_path / "run"
    code, output, errors = call(*start.split(), *flags.split(), f"--run_dir={folder}")
    assert (code, errors) == (0, "")
    assert json.loads((folder / "config.json").read_text())["env_name"] == "CartPole-v1"
    assert output.endswith(f"next: ppo evaluate {os.path.relpath(folder)}\n")


class Stopped(Exception):
    """A signal ended training, under torchrun."""

    exit_code = 0


class Reported(PPOError):
    """An error that another rank prints."""

    exit_code = 4
    is_reported = True


@pytest.mark.parametrize(
    ("error", "code", "printed"),
    [
        (PPOError("two\nlines"), 1, "error: two lines\n"),
        (CheckpointError("damaged"), 3, "error: damaged\n"),
        (Stopped("SIGTERM"), 0, "error: SIGTERM\n"),
        (Interrupted(signal.SIGTERM, "stopped it"), 143, "SIGTERM stopped it\n"),
        (Reported("no"), 4, ""),
        (KeyError(), 1, "error: KeyError\n"),
        (WorkerError("it broke", "Traceback: x\n"), 1, "Traceback: x\nerror: it broke\n"),
        (SystemExit(0), 1, "error: something has called sys.exit(0): --debug shows where\n"),
        (KeyboardInterrupt(), 130, "interrupted: stopped at once\n"),
    ],
    ids=repr,
)
def test_an_error_is_one_line_and_an_exit_code(
    error: BaseException, code: int, printed: str, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    def fail(arguments: object) -> None:
        raise error

    monkeypatch.setattr(ppo.__main__, "_run", fail)
    assert call("--seed=1") == (code, "", printed)
    if isinstance(error, PPOError | KeyboardInterrupt | Stopped):
        assert call("--debug") == (code, "", printed)
    else:
        code_again, _, shown = call("--debug")
        assert code_again == code
        assert shown.startswith("Traceback (most recent call last):")
        assert shown.endswith(printed)
