"""Training speed beside Stable-Baselines3: python -m benchmarks.throughput [--steps=102400] [--repetitions=3] [--env=ID]

Trains the same work with both in turn, each run in fresh processes: ours by main.py as a user would call it, theirs
by their PPO on their DummyVecEnv, with our make_env and one torch thread. Timed is the training loop, collecting and
learning, from the end of the first iteration to the end of the last. The first is left out on both sides, because
ours starts its workers during it. What remains different: ours steps environments in a process per core while SB3
has one process for all, which is the default of each; and SB3 clips values without taking the larger of both errors.
Writes results/throughput/: a file of all that was measured for each environment, and a table of them, README.md.
"""

import csv
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from envs.make import make_env

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "throughput"
NUM_ENVS, NUM_STEPS = 8, 128
BATCH = NUM_ENVS * NUM_STEPS
OURS = {
    "preset": "none",
    "model": "mlp",
    "hidden_size": 64,
    "num_envs": NUM_ENVS,
    "num_steps": NUM_STEPS,
    "num_epochs": 4,
    "num_minibatches": 4,
    "learning_rate": 2.5e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_coef": 0.1,
    "clip_value_coef": 0.1,
    "value_coef": 0.5,
    "entropy_coef": 0.01,
    "max_grad_norm": 0.5,
    "normalize_advantages": "minibatch",
    "normalize_observations": "false",
    "normalize_rewards": "false",
    "device": "cpu",
    "eval_episodes": 0,
    "logger": "none",
}
# MlpPolicy's own defaults are as ours: 2 x 64 tanh each for policy and value, orthogonal, Adam with epsilon 1e-5.
SB3 = {
    "policy": "MlpPolicy",
    "n_steps": NUM_STEPS,
    "n_epochs": 4,
    "batch_size": BATCH // 4,
    "learning_rate": 2.5e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_range": 0.1,
    "clip_range_vf": 0.1,
    "vf_coef": 0.25,  # ours has a factor 1/2 in the loss
    "ent_coef": 0.01,
    "max_grad_norm": 0.5,
    "normalize_advantage": True,
    "device": "cpu",
}


def run_ours(env_name: str, steps: int, seed: int) -> dict[str, Any]:
    """Seconds at the end of each iteration, from any one moment on, and the mean return of the last 100 episodes."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, *ours(env_name, steps, seed), f"--run_dir={folder}"], check=True, cwd=ROOT)
        with Path(folder, "metrics.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
    return {"ends": [float(row["seconds"]) for row in rows], "mean_return": float(rows[-1]["episode_return_mean"])}


def run_sb3(env_name: str, steps: int, seed: int) -> dict[str, Any]:
    """The same of Stable-Baselines3, in a process of its own."""
    flags = ("--one=sb3", f"--env={env_name}", f"--steps={steps}", f"--seed={seed}")
    command = [sys.executable, "-m", "benchmarks.throughput", *flags]
    output = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output.splitlines()[-1])


def train_sb3(env_name: str, steps: int, seed: int) -> dict[str, Any]:
    """The same of Stable-Baselines3, in this process."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv

    class TimedPPO(PPO):
        def train(self) -> None:
            super().train()
            ends.append(time.perf_counter())

    torch.set_num_threads(1)
    ends: list[float] = []
    # By its name, make_vec_env would make an environment that can render; this costs LunarLander time at every step.
    envs = make_vec_env(lambda: make_env(env_name), NUM_ENVS, vec_env_cls=DummyVecEnv)
    model = TimedPPO(env=envs, seed=seed, **SB3).learn(steps)
    return {"ends": ends, "mean_return": sum(info["r"] for info in model.ep_info_buffer) / len(model.ep_info_buffer)}


def ours(env_name: str, steps: int | str, seed: int | str) -> list[str]:
    flags = {"env_name": env_name, "total_steps": steps, "seed": seed, **OURS}
    return ["main.py", *(f"--{name}={value}" for name, value in flags.items())]


def about_machine(*packages: str) -> dict[str, Any]:
    """Hardware, versions and source that a measurement was made with, and how busy the machine was before."""
    cpuinfo, git = Path("/proc/cpuinfo"), ["git", "describe", "--always", "--dirty"]
    model = re.search(r"model name\s*: (.*)", cpuinfo.read_text() if cpuinfo.exists() else "")
    return {
        "cpu": model[1] if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in packages},
        },
        "commit": subprocess.run(git, cwd=ROOT, capture_output=True, text=True).stdout.strip() or None,
    }


def table() -> str:
    """Markdown: a row for each environment that is in the results."""
    lines = [
        "# Training speed beside Stable-Baselines3",
        "",
        "Written by `python -m benchmarks.throughput`. Environment steps per second of the whole training loop at",
        f"{NUM_ENVS} environments x {NUM_STEPS} steps, 4 epochs x 4 minibatches, 2 x 64 tanh, on the CPU: medians of runs in turn.",
        "",
        "| environment | steps | ours | SB3 | ratio | ratio of each pair | machine | versions |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    return "\n".join(lines) + "\n"
