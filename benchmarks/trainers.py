"""The trainers that are compared, on the same work: this one, by its command line, and Stable-Baselines3's PPO."""

import csv
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.common import ROOT, about_machine
from ppo.envs.make import make_env

GAME = "PongNoFrameskip-v4"
NUM_ENVS, NUM_STEPS, NUM_MINIBATCHES = 8, 128, 4
BATCH_SIZE = NUM_ENVS * NUM_STEPS
PHASES = ("seconds_collecting", "seconds_learning")

SAME = {
    "learning_rate": 2.5e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "max_grad_norm": 0.5,
    "device": "cpu",
}
OURS = {
    **{"preset": "none", "model": "mlp", "hidden_size": 64, "share_trunk": False},
    **{
        "num_envs": NUM_ENVS,
        "num_steps": NUM_STEPS,
        "num_epochs": 4,
        "num_minibatches": NUM_MINIBATCHES,
    },
    "num_workers": min(NUM_ENVS, about_machine()["cores"]),
    **{"clip_coef": 0.1, "clip_value_coef": 0.1, "value_coef": 0.5, "entropy_coef": 0.01},
    **{
        "normalize_advantages": "minibatch",
        "normalize_observations": False,
        "normalize_rewards": False,
    },
    **{"eval_episodes": 0, "logger": "none", "report": False},
    **SAME,
}
PIXELS = {**OURS, "model": "cnn", "hidden_size": 512, "share_trunk": True, "clip_rewards": True}
# Of MlpPolicy the defaults are as ours: 2 x 64 tanh each for policy and value, orthogonal, Adam with epsilon 1e-5.
SB3 = {
    **{
        "policy": "MlpPolicy",
        "n_steps": NUM_STEPS,
        "n_epochs": 4,
        "batch_size": BATCH_SIZE // NUM_MINIBATCHES,
    },
    **{"clip_range": 0.1, "clip_range_vf": 0.1, "ent_coef": 0.01, "normalize_advantage": True},
    "vf_coef": 0.25,  # half of ours, whose loss has a factor 1/2
    **SAME,
}


def our_command(
    env_name: str, steps: int, seed: int | str, flags: dict[str, Any] = OURS
) -> list[str]:
    flags = {"env_name": env_name, "total_steps": steps, "seed": seed, **flags}
    return ["main.py", *(f"--{name}={value}" for name, value in flags.items())]


def run_ours(env_name: str, steps: int, seed: int, flags: dict[str, Any] = OURS) -> dict[str, Any]:
    """Steps per second of a run, the mean of its last 100 returns, and the median seconds of an iteration's phases."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            *our_command(env_name, steps, seed, flags),
            f"--run_dir={folder}",
        ]
        if exit_code := subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL).returncode:
            raise SystemExit(f"{shlex.join(command)} ended with exit code {exit_code}")
        rows = list(csv.DictReader(Path(folder, "metrics.csv").read_text().splitlines()))
    assert int(rows[-1]["step"]) == steps
    mean_return = rows[-1]["episode_return_mean"]
    return {
        "steps_per_second": steady_speed([float(row["seconds"]) for row in rows], steps),
        "mean_return": float(mean_return) if mean_return else None,
        **{phase: median(float(row[phase]) for row in rows[1:]) for phase in PHASES},
    }


def run_sb3(env_name: str, steps: int, seed: int, plain: bool = False) -> dict[str, Any]:
    """Steps per second and mean return of Stable-Baselines3, in this process. plain: on environments that cannot
    render."""
    import ale_py  # noqa: F401 (it registers the games)
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

    class TimedPPO(PPO):
        def train(self) -> None:
            super().train()
            ends.append(time.perf_counter())

    ends: list[float] = []
    is_game = env_name == GAME
    torch.set_num_threads(about_machine()["cores"] if is_game else 1)
    if is_game:
        envs: Any = VecFrameStack(make_atari_env(env_name, NUM_ENVS, seed), 4)
    else:
        envs = make_vec_env(
            (lambda: make_env(env_name)) if plain else env_name, NUM_ENVS, vec_env_cls=DummyVecEnv
        )
    model = TimedPPO(
        env=envs, seed=seed, **{**SB3, "policy": "CnnPolicy" if is_game else "MlpPolicy"}
    ).learn(steps)
    assert len(ends) * BATCH_SIZE == steps
    envs.close()
    returns = [episode["r"] for episode in model.ep_info_buffer]
    return {
        "steps_per_second": steady_speed(ends, steps),
        "mean_return": fmean(returns) if returns else None,
    }


def steady_speed(ends: list[float], steps: int) -> float:
    """Steps per second from the end of the first iteration to the end of the last. ends: seconds of each."""
    return steps * (1 - 1 / len(ends)) / (ends[-1] - ends[0])
