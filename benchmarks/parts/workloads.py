"""The work on which trainers are compared, and how each does it: main.py, and PPO of
Stable-Baselines3 and CleanRL with settings that mean the same.
"""

import os
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pkgutil import resolve_name
from statistics import fmean, median
from typing import Any, NamedTuple

from benchmarks import harness

GAME = "PongNoFrameskip-v4"
PHASES = ("seconds_collecting", "seconds_learning")
OURS = (
    f"--preset=none --model=mlp --hidden_size=64 --share_trunk=False --device=cpu {harness.QUIET}"
    " --learning_rate=2.5e-4 --gamma=0.99 --gae_lambda=0.95 --clip_coef=0.1 --clip_value_coef=0.1"
    " --value_coef=0.5 --entropy_coef=0.01 --max_grad_norm=0.5 --normalize_advantages=minibatch"
)
# Of MlpPolicy the defaults are as ours: 2 x 64 tanh each for policy and value, orthogonal, and Adam
# with epsilon 1e-5.
SB3 = {
    "policy": "MlpPolicy",
    "clip_range": 0.1,
    "clip_range_vf": 0.1,
    "ent_coef": 0.01,
    "vf_coef": 0.25,  # half of ours, whose loss has a factor 1/2
    "learning_rate": 2.5e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "max_grad_norm": 0.5,
    "device": "cpu",
}


class Workload(NamedTuple):
    """Work that both trainers do."""

    env_name: str
    steps: int  # of a run, rounded down to whole iterations
    flags: str = ""  # of main.py, besides OURS
    settings: dict[str, Any] = {}  # noqa: RUF012 (of Stable-Baselines3, besides SB3)
    num_envs: int = 8
    num_steps: int = 128
    num_epochs: int = 4
    batch_size: int = 256  # rows of a minibatch; with more environments there are as many of them
    normalizes: bool = False  # observations and rewards
    is_documented: bool = False  # SB3 as its documentation makes environments, and ours with more
    has_limit: bool = True  # its operations can be counted

    @property
    def num_minibatches(self) -> int:
        return self.num_envs * self.num_steps // self.batch_size

    def own_flags(self, num_envs: int | None = None) -> str:
        """Return the flags of main.py, but for environment, steps and seed."""
        size = num_envs or self.num_envs
        sizes = {
            "num_envs": size,
            "num_steps": self.num_steps,
            "num_minibatches": self.num_minibatches,
            "num_epochs": self.num_epochs,
            "num_workers": min(size, harness.num_cores()),
            "normalize_observations": self.normalizes,
            "normalize_rewards": self.normalizes,
        }
        given = " ".join(f"--{name}={value}" for name, value in sizes.items())
        return f"{OURS} {given} {self.flags}"

    @property
    def sb3_settings(self) -> dict[str, Any]:
        """Return the arguments of Stable-Baselines3's PPO, but for the environments."""
        sizes = {"n_steps": self.num_steps, "batch_size": self.batch_size}
        return {**SB3, **sizes, "n_epochs": self.num_epochs, **self.settings}

    def steps_of(self, num_envs: int | None = None, is_quick: bool = False) -> int:
        """Count the steps of a run: at least ten whole iterations, or three of a quick one."""
        iteration = (num_envs or self.num_envs) * self.num_steps
        steps, least = (self.steps // 8, 3) if is_quick else (self.steps, 10)
        return max(least, steps // iteration) * iteration


ROBOTICS = Workload(
    "HalfCheetah-v5",
    steps=81_920,
    flags="--hidden_size=256",
    settings={"policy_kwargs": {"net_arch": [256, 256]}},
    num_envs=16,
    num_steps=512,
    num_epochs=10,
    batch_size=512,
    normalizes=True,
)
WORKLOADS = {
    "CartPole-v1": Workload("CartPole-v1", 131_072, is_documented=True),
    "LunarLander-v3": Workload("LunarLander-v3", 81_920, is_documented=True),
    "BipedalWalker-v3": Workload("BipedalWalker-v3", 61_440, is_documented=True),
    GAME: Workload(
        GAME,
        steps=12_288,
        flags="--model=cnn --hidden_size=512 --share_trunk=True --clip_rewards=True",
        settings={"policy": "CnnPolicy"},
        is_documented=True,
    ),
    "robotics": ROBOTICS,
    "sb3-defaults": Workload(
        "HalfCheetah-v5",
        steps=20_480,
        flags=(
            "--learning_rate=3e-4 --clip_coef=0.2 --clip_value_coef=none --entropy_coef=0"
            " --value_coef=1"
        ),
        settings={
            "learning_rate": 3e-4,
            "clip_range": 0.2,
            "clip_range_vf": None,
            "ent_coef": 0.0,
            "vf_coef": 0.5,
        },
        num_envs=1,
        num_steps=2048,
        num_epochs=10,
        batch_size=64,
    ),
    "small-batches": Workload(
        "LunarLander-v3", steps=40_960, num_steps=256, num_epochs=10, batch_size=64
    ),
    "memory": Workload(
        "examples.own_environment:HiddenVelocity",
        steps=40_960,
        flags="--model=lstm --hidden_size=128 --share_trunk=True",
        settings={
            "policy": "MlpLstmPolicy",
            "policy_kwargs": {
                "lstm_hidden_size": 128,
                "shared_lstm": True,
                "enable_critic_lstm": False,
            },
        },
        has_limit=False,
    ),
}


def run_ours(env_name: str, steps: int, flags: str, seed: int) -> harness.Result:
    """Measure steps per second, the mean of the last 100 returns, and medians of the phases."""
    run = harness.train(f"--env_name={env_name} --total_steps={steps} --seed={seed} {flags}")
    assert int(run.rows[-1]["step"]) == steps
    mean_return = run.rows[-1]["episode_return_mean"]
    return {
        "steps_per_second": run.steps_per_second,
        "mean_return": float(mean_return) if mean_return else None,
        **{phase: median(run.column(phase)[1:]) for phase in PHASES},
    }


def memory_of(env_name: str, steps: int, flags: str) -> float:
    """Measure the largest memory of a run of ours, in MiB."""
    with tempfile.TemporaryDirectory() as folder:
        run = f"--env_name={env_name} --total_steps={steps} --seed=1 --run_dir={folder}/run"
        return harness.peak_memory("main.py", *run.split(), *flags.split())


def run_sb3(
    workload: Workload, steps: int, is_documented: bool, num_threads: int, seed: int
) -> harness.Result:
    """Measure Stable-Baselines3 in this process, from the end of its first iteration to the last.

    is_documented: environments are made from their id, able to render; else they cannot. A policy
    with an LSTM is learned by SB3-Contrib.
    """
    import torch

    settings = workload.sb3_settings
    algorithm: Any
    if "Lstm" in settings["policy"]:
        from sb3_contrib import RecurrentPPO as algorithm
    else:
        from stable_baselines3 import PPO as algorithm

    class WatchedPPO(algorithm):
        def train(self) -> None:
            super().train()
            returns = [episode["r"] for episode in self.ep_info_buffer or ()]
            ends.append((time.perf_counter(), self.num_timesteps, fmean(returns or [0.0])))

    ends: list[tuple[float, int, float]] = []  # seconds, step, mean return
    torch.set_num_threads(num_threads)
    envs = sb3_envs(workload, is_documented, seed)
    WatchedPPO(env=envs, seed=seed, **settings).learn(steps)
    envs.close()
    (begin, first, _), *_, (end, last, mean_return) = ends
    assert last == steps
    return {"steps_per_second": (last - first) / (end - begin), "mean_return": mean_return}


def run_cleanrl(command: str, workload: Workload, steps: int, seed: int) -> harness.Result:
    """Measure CleanRL's ppo.py, from the end of its first iteration to the last, by the mean speed
    since its beginning that it prints after each. Raises SystemExit if it fails."""
    flags = {
        "env-id": workload.env_name,
        "total-timesteps": steps,
        "num-envs": workload.num_envs,
        "num-steps": workload.num_steps,
        "num-minibatches": workload.num_minibatches,
        "update-epochs": workload.num_epochs,
        "clip-coef": SB3["clip_range"],
        "seed": seed,
    }
    line = [*shlex.split(command), *(f"--{name}={value}" for name, value in flags.items())]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, **harness.ONE_THREAD}
        done = subprocess.run(line, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    speeds = [float(speed) for speed in re.findall(r"SPS: (\d+)", done.stdout)]
    iteration = workload.num_envs * workload.num_steps
    if done.returncode or len(speeds) != steps // iteration:
        raise SystemExit(f"{shlex.join(line)} ended with exit code {done.returncode}")
    seconds = steps / speeds[-1] - iteration / speeds[0]
    return {"steps_per_second": (steps - iteration) / seconds}


def sb3_envs(workload: Workload, is_documented: bool, seed: int) -> Any:
    """Make a workload's environments in this process; those of Atari as documented, always."""
    import ale_py  # noqa: F401 (it registers the games)
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

    if workload.env_name == GAME:
        return VecFrameStack(make_atari_env(GAME, workload.num_envs, seed), 4)
    made = workload.env_name if is_documented else plain_maker(workload.env_name)
    envs: Any = make_vec_env(made, workload.num_envs, vec_env_cls=DummyVecEnv)
    return VecNormalize(envs) if workload.normalizes else envs


def plain_maker(env_name: str) -> Callable[[], Any]:
    """Return what makes an environment that cannot render, as gymnasium makes it by default.

    env_name: an id, or module:Class.
    """
    import gymnasium

    return resolve_name(env_name) if ":" in env_name else partial(gymnasium.make, env_name)
