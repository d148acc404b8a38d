"""train and load_policy called from a script: its process is left as it was."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.running import ROOT

SCRIPT = """
import gc, multiprocessing, os, signal, sys, warnings
import numpy as np
import torch
from threadpoolctl import threadpool_info, threadpool_limits

import ppo
from ppo import load_policy, train


def state():
    return {
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "path": list(sys.path),
        "threads": torch.get_num_threads(),
        "blas": next(x["num_threads"] for x in threadpool_info() if "numpy" in x["filepath"]),
        "precision": (torch.get_float32_matmul_precision(), torch.get_default_dtype()),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "torch": torch.get_rng_state().tolist(),
        "numpy": str(np.random.get_state()),
        "errors": np.geterr(),
        "garbage": (gc.isenabled(), gc.get_freeze_count(), gc.get_threshold()),
        "signals": [signal.getsignal(number) for number in signal.valid_signals()],
        "warnings": list(warnings.filters),
        "denormals": float(torch.full((1,), 1e-39).mul(1.0)),
    }


def unchanged(before):
    after = state()
    assert before == after, {x: (before[x], after[x]) for x in before if before[x] != after[x]}


if __name__ == "__main__":
    torch.set_num_threads(2)
    threadpool_limits(2, "blas")
    torch.manual_seed(5)
    np.random.seed(5)
    before = state()
    flags = dict(preset="none", num_envs=2, num_steps=8, num_minibatches=1, total_steps=32,
                 num_workers=1, eval_episodes=1, report=False, verbose=0)
    made = train("CartPole-v1", torch_deterministic=True, run_dir="vectors", **flags)
    unchanged(before)
    image = "PongNoFrameskip-v4"
    train(image, learning_rate="linear:1e-4", run_dir="images", **{**flags, "num_workers": 0,
          "eval_episodes": 0})
    unchanged(before)
    policy = load_policy(made.checkpoint)
    policy.evaluate(episodes=1)
    unchanged(before)
    opened = len(os.listdir("/proc/self/fd"))
    for number in range(2):
        train("CartPole-v1", run_dir=f"again{number}", **{**flags, "num_workers": 2 * number})
    assert len(os.listdir("/proc/self/fd")) == opened
    try:
        train("CartPole-v1", run_dir="vectors", **flags)
    except ppo.errors.ConfigError:
        unchanged(before)
        multiprocessing.set_start_method("spawn")  # is free to choose
        print("same")
"""


@pytest.mark.slow
def test_a_script_finds_its_process_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {name: x for name, x in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "same"), done.stderr


def test_the_second_name_of_a_package_is_refused() -> None:
    for name in ("envs", "models"):
        command = [sys.executable, "-c", f"import {name}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 1
        assert f"ImportError: import ppo.{name}, not {name}" in done.stderr


def test_importing_leaves_forks_alone() -> None:
    code = """
import os
found = []
register = os.register_at_fork
os.register_at_fork = lambda **hooks: (found.extend(hooks.values()), register(**hooks))
from ppo import load_policy, train
print([hook for hook in found if str(hook.__module__).startswith("ppo")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout, done.stderr) == ("[]\n", "")


MINE = """
import gymnasium
import numpy as np

from ppo import train


class Mine(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, True, False, {}


gymnasium.register("Mine-v0", Mine)
if __name__ in IF:
    for number, env in enumerate((Mine, "Mine-v0", lambda: Mine())):
        train(env, preset="none", num_envs=2, num_steps=8, total_steps=32, num_workers=0,
              num_minibatches=1, eval_episodes=0, report=False, run_dir=f"runs/{number}")
"""


@pytest.mark.parametrize("has_guard", [True, False])
def test_what_is_printed_next_works_from_where_one_stands(has_guard: bool, tmp_path: Path) -> None:
    """A command imports a class of a script only if that does not train as it is imported."""
    script = tmp_path / "own" / "mine.py"
    script.parent.mkdir()
    guarded = MINE.replace(" in IF", ' == "__main__"')
    script.write_text(guarded if has_guard else MINE.replace("if __name__ in IF", "if True"))
    options: dict[str, Any] = {
        **{"cwd": tmp_path, "capture_output": True, "text": True},
        "env": {**os.environ, "PYTHONPATH": str(ROOT)},
    }
    done = subprocess.run([sys.executable, "own/mine.py"], **options)
    assert done.returncode == 0, done.stderr
    commands = re.findall(r"^next(?:, in Python)?: (.*)$", done.stdout, re.M)
    code = [f"load_policy('runs/{number}'" for number in range(3)]
    assert commands[1:] == [
        f"{code[1]}).evaluate(episodes=100)",
        f"{code[2]}, env).evaluate(episodes=100)",
    ]
    if has_guard:
        assert commands[0].endswith(" evaluate runs/0 --env_name=own/mine.py:Mine")
        done = subprocess.run(commands[0], shell=True, **options)
        assert (done.returncode, done.stderr) == (0, "")
        assert "return 1.00 +/- 0.0" in done.stdout
    else:
        assert commands[0] == f"{code[0]}, Mine).evaluate(episodes=100)"


def test_a_file_that_trains_as_it_is_imported_is_named_with_the_guard(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE.replace("if __name__ in IF", "if True"))
    command = [sys.executable, "-m", "ppo", "train", "mine.py:Mine", "--run_dir=run"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: mine.py trains as it is imported: put its calls of train below a line "
        'if __name__ == "__main__":\n'
    )
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ""] == ["mine.py"]
