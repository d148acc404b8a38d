"""Odd input from the user's side, by main.py in real processes: one sentence, and no traceback."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.running import ROOT, command, run_main

SMALL = ("--num_envs=1", "--num_steps=8", "--num_minibatches=1", "--num_workers=0")
TINY = ("--env_name=CartPole-v1", "--preset=none", *SMALL, "--total_steps=64", "--eval_episodes=0")
CALLBACK = """
import numpy as np, torch
from ppo import Callback

class Keeper(Callback):
    seen = 0

    def on_iteration(self, run):
        self.seen += 1

    def state_dict(self):
        return {{"value": {value}, "seen": self.seen}}

    def load_state_dict(self, state):
        print("restored", np.asarray(state["value"]).tolist())
"""
ENVIRONMENT = """
import gymnasium
import numpy as np
from gymnasium import spaces

class Odd(gymnasium.Env):
    observation_space = {observations}
    action_space = {actions}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {{}}

    def step(self, action):
        return self.observation_space.sample(), {reward}, False, False, {{}}
"""


def one_error(done: subprocess.CompletedProcess[str], code: int = 2) -> str:
    """Return the only line on stderr, which is an error."""
    assert done.returncode == code, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.mark.slow
@pytest.mark.parametrize(
    "value", ["{1, 2}", "b'bytes'", "{1: 2, 'a': 3}", "object()", "np.array([None])"]
)
def test_a_state_that_cannot_be_saved_is_refused_at_the_start(tmp_path: Path, value: str) -> None:
    (tmp_path / "keeper.py").write_text(CALLBACK.format(value=value))
    done = run_main(*TINY, "--callback=keeper.py:Keeper", "--run_dir=run", cwd=tmp_path)
    assert "callbacks.Keeper.0.value is " in one_error(done)
    assert not (tmp_path / "run" / "metrics.csv").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "restored"),
    [
        ("np.asfortranarray([[1, 2], [3, 4]])", "[[1, 2], [3, 4]]"),
        ("np.arange(6)[::-2]", "[5, 3, 1]"),
        ("torch.arange(4.0).view(2, 2).T", "[[0.0, 2.0], [1.0, 3.0]]"),
    ],
)
def test_an_array_in_any_order_is_saved(tmp_path: Path, value: str, restored: str) -> None:
    (tmp_path / "keeper.py").write_text(CALLBACK.format(value=value))
    keeper = "--callback=keeper.py:Keeper"
    assert run_main(*TINY, keeper, "--run_dir=run", cwd=tmp_path).returncode == 0
    done = run_main("--resume=run", keeper, "--total_steps=72", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"restored {restored}" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--wrapper=builtins:exit",), "--wrapper=builtins:exit does not fit the environment"),
        (("--wrapper=builtins:print",), "--wrapper=builtins:print does not fit the environment"),
        (('--env_kwargs={"self": 1}',), "self"),
    ],
)
def test_what_makes_no_environment_is_named(tmp_path: Path, arguments: Any, said: str) -> None:
    assert said in one_error(run_main(*TINY, *arguments, f"--run_dir={tmp_path / 'run'}"))


def test_a_file_of_flags_that_is_nested_too_deep_is_named(tmp_path: Path) -> None:
    file = tmp_path / "flags.json"
    for text in ("[" * 100_000, '{"env_kwargs": ' * 500 + "{}" + "}" * 500):
        file.write_text(text)
        assert f"--config={file}: it cannot be read" in one_error(run_main(f"--config={file}"))


def test_a_working_folder_that_was_removed_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"cd {gone} && rmdir {gone} && exec {sys.executable} {ROOT / 'main.py'} --verbose=0"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert "the working folder cannot be found" in one_error(done)


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables",
    [
        {"RANK": "0", "WORLD_SIZE": "2"},
        {"WORLD_SIZE": "many"},
        {"RANK": "3", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"},
    ],
)
def test_half_of_torchruns_variables_are_named(tmp_path: Path, variables: dict[str, str]) -> None:
    environment = {**os.environ, **variables}
    done = run_main(*TINY, f"--run_dir={tmp_path / 'run'}", env=environment)
    assert "start the ranks by torchrun" in one_error(done)


NAN_BOX = "spaces.Box(-1, 1, (2,)); {name}_space.low[:] = np.nan"
UNIT_BOX = "spaces.Box(-1, 1, (2,))"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("observations", "actions", "said"),
    [
        (NAN_BOX.format(name="observation"), "spaces.Discrete(2)", "nan"),
        (UNIT_BOX, NAN_BOX.format(name="action"), "nan"),
        ("spaces.Discrete(10**10)", "spaces.Discrete(2)", "observations of 10,000,000,000 numbers"),
        (UNIT_BOX, "spaces.Discrete(10**9)", "a network from 2 numbers to 1,000,000,000"),
        ("spaces.Box(-1, 1, (10**6,))", "spaces.Discrete(2)", "a network from 1,000,000"),
    ],
)
def test_a_space_that_no_run_can_bear_is_named(
    tmp_path: Path, observations: str, actions: str, said: str
) -> None:
    text = ENVIRONMENT.format(observations=observations, actions=actions, reward=1.0)
    (tmp_path / "odd.py").write_text(text)
    done = run_main(*TINY, "--env_name=odd.py:Odd", "--hidden_size=4096", cwd=tmp_path)
    assert said in one_error(done)


@pytest.mark.slow
def test_a_large_run_says_what_it_takes(tmp_path: Path) -> None:
    text = ENVIRONMENT.format(
        observations="spaces.Box(-1, 1, (400_000,))", actions="spaces.Discrete(2)", reward=1.0
    )
    (tmp_path / "odd.py").write_text(text)
    flags = [*SMALL, "--preset=none", "--total_steps=8", "--eval_episodes=0", "--num_epochs=1"]
    done = run_main(*flags, "--env_name=odd.py:Odd", "--run_dir=run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "this run is large: 0.0 GiB of observations in a rollout, 51," in done.stdout


@pytest.mark.slow
def test_a_diverging_run_is_told_in_one_sentence(tmp_path: Path) -> None:
    done = run_main(*TINY, "--learning_rate=1e30", f"--run_dir={tmp_path / 'run'}")
    assert done.returncode == 1
    assert "RuntimeWarning" not in done.stderr
    lines = done.stderr.splitlines()
    assert all(line.startswith(("warning: ", "error: ")) for line in lines)
    assert lines[-1].startswith("error: ")


@pytest.mark.slow
def test_runs_from_python_leave_no_descriptor_open(tmp_path: Path) -> None:
    script = """
import os, sys
from ppo import train
for number in range(5):
    sizes = {"num_envs": 2, "num_steps": 8, "total_steps": 32, "eval_episodes": 1}
    train("CartPole-v1", preset="none", run_dir=f"run{number}", verbose=0, report=False,
          num_workers=2 * (number % 2), **sizes)
    if number < 2:
        before = len(os.listdir("/proc/self/fd"))
print(len(os.listdir("/proc/self/fd")) - before)
"""
    (tmp_path / "script.py").write_text(f"if __name__ == '__main__':\n    exec({script!r})\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "0"), done.stderr


@pytest.mark.slow
def test_an_output_that_is_no_file_is_named(cartpole_run: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for output in ("/dev/full", "/dev/null", fifo, tmp_path):
        done = subprocess.run(
            command("evaluate", str(cartpole_run), "--episodes=1", f"--output={output}"),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert f"--output={output} cannot be" in one_error(done)
