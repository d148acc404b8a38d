"""train and load_policy called from a script: its process is left as it was."""

import os
import subprocess
import sys
from pathlib import Path

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
