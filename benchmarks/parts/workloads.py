"""The work on which training speed is compared, and how each trainer does it: main.py, and PPO of
Stable-Baselines3 and CleanRL with settings that mean the same."""

import os
import re
import shlex
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks import harness

GAME = "PongNoFrameskip-v4"
PHASES = ("seconds_collecting", "seconds_learning")
OURS = {
    **harness.QUIET,
    "preset": "none",
    "model": "mlp",
    "hidden_size": 64,
    "share_trunk": False,
    "learning_rate": 2.5e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_coef": 0.1,
    "clip_value_coef": 0.1,
    "value_coef": 0.5,
    "entropy_coef": 0.01,
    "max_grad_norm": 0.5,
    "normalize_advantages": "minibatch",
}
# MlpPolicy's defaults are the same as ours: 2 x 64 tanh each for policy and value, orthogonal
# weights, and Adam with epsilon 1e-5.
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
}


class Workload(NamedTuple):
    """Work that both trainers do. flags, settings: of main.py and Stable-Baselines3, in addition to
    OURS and SB3; batch_size: of a minibatch; with more environments there are as many of them."""

    env_name: str
    steps: int
    flags: dict[str, Any] = {}  # noqa: RUF012
    settings: dict[str, Any] = {}  # noqa: RUF012
    num_envs: int = 8
    num_steps: int = 128
    num_epochs: int = 4
    batch_size: int = 256
    normalizes: bool = False  # observations and rewards

    def own_flags(self, num_envs: int) -> dict[str, Any]:
        """Return the flags of main.py, but for steps, seed and device."""
        return {
            **OURS,
            "env_name": self.env_name,
            "num_envs": num_envs,
            "num_steps": self.num_steps,
            "num_minibatches": self.num_envs * self.num_steps // self.batch_size,
            "num_epochs": self.num_epochs,
            "normalize_observations": self.normalizes,
            "normalize_rewards": self.normalizes,
            **self.flags,
        }

    @property
    def sb3_settings(self) -> dict[str, Any]:
        """Return the arguments of Stable-Baselines3's PPO, but for environments and device."""
        sizes = {"n_steps": self.num_steps, "batch_size": self.batch_size}
        return {**SB3, **sizes, "n_epochs": self.num_epochs, **self.settings}

    def steps_of(self, num_envs: int, is_quick: bool = False) -> int:
        """Return the steps of a run: at least ten whole iterations, or three of a quick one."""
        iteration = num_envs * self.num_steps
        steps, least = (self.steps // 8, 3) if is_quick else (self.steps, 10)
        return max(least, steps // iteration) * iteration


WORKLOADS = {
    "CartPole": Workload("CartPole-v1", 131_072),
    "LunarLander": Workload("LunarLander-v3", 81_920),
    "BipedalWalker": Workload("BipedalWalker-v3", 61_440),
    "EnvPool": Workload("EnvPool/LunarLander-v3", 655_360, num_envs=64),
    "Pong": Workload(
        GAME,
        steps=12_288,
        flags={"model": "cnn", "hidden_size": 512, "share_trunk": True, "clip_rewards": True},
        settings={"policy": "CnnPolicy"},
    ),
    "HalfCheetah": Workload(
        "HalfCheetah-v5",
        steps=81_920,
        flags={"hidden_size": 256},
        settings={"policy_kwargs": {"net_arch": [256, 256]}},
        num_envs=16,
        num_steps=512,
        num_epochs=10,
        batch_size=512,
        normalizes=True,
    ),
}


def run_ours(flags: harness.Flags, seed: int) -> harness.Result:
    """Measure steps per second, and medians of the phases of an iteration."""
    run = harness.train({**flags, "seed": seed})
    phases = {phase: median(run.column(phase)[1:]) for phase in PHASES}
    return {"steps_per_second": run.steps_per_second, **phases}


def memory_of(flags: harness.Flags) -> float:
    """Measure the largest memory of a run of ours in MiB, over all its processes; pages that
    several share count once."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*harness.MAIN, *harness.command_of({**flags, "run_dir": f"{folder}/run"})]
        with subprocess.Popen(command, cwd=harness.ROOT, stdout=subprocess.DEVNULL) as process:
            peak = 0.0
            while process.poll() is None:
                peak = max(peak, resident(process.pid))
                time.sleep(0.1)
    assert process.returncode == 0
    return peak


def resident(root: int) -> float:
    """Return the MiB of a process and all its descendants."""
    processes = [root]
    total = 0
    for process in processes:
        folder = Path(f"/proc/{process}")
        try:
            processes += map(int, (folder / f"task/{process}/children").read_text().split())
            total += int((folder / "smaps_rollup").read_text().split("Pss:")[1].split()[0])
        except (OSError, IndexError):
            continue  # it has just ended
    return total / 1024


def run_sb3(
    workload: Workload, steps: int, device: str, num_threads: int, seed: int
) -> harness.Result:
    """Measure Stable-Baselines3 in this process, from the end of its first iteration to the last,
    on its DummyVecEnv with environments that cannot render, which is faster."""
    import torch
    from stable_baselines3 import PPO

    class WatchedPPO(PPO):
        def train(self) -> None:
            super().train()
            ends.append((time.perf_counter(), self.num_timesteps))

    ends: list[tuple[float, int]] = []  # seconds, step
    torch.set_num_threads(num_threads)
    envs = sb3_envs(workload, seed)
    WatchedPPO(env=envs, seed=seed, device=device, **workload.sb3_settings).learn(steps)
    envs.close()
    (begin, first), *_, (end, last) = ends
    return {"steps_per_second": (last - first) / (end - begin)}


def run_cleanrl(command: str, workload: Workload, steps: int, seed: int) -> harness.Result:
    """Measure CleanRL's ppo.py, from the end of its first iteration to the last, by the mean speed
    since its start that it prints after each. Raises SystemExit if it fails."""
    iteration = workload.num_envs * workload.num_steps
    flags = {
        "env-id": workload.env_name,
        "total-timesteps": steps,
        "num-envs": workload.num_envs,
        "num-steps": workload.num_steps,
        "num-minibatches": iteration // workload.batch_size,
        "update-epochs": workload.num_epochs,
        "clip-coef": SB3["clip_range"],
        "seed": seed,
    }
    line = [*shlex.split(command), *harness.command_of(flags)]
    with tempfile.TemporaryDirectory() as folder:
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(line, cwd=folder, env=one_thread, stdout=subprocess.PIPE, text=True)
    speeds = [float(speed) for speed in re.findall(r"SPS: (\d+)", done.stdout)]
    if done.returncode or len(speeds) != steps // iteration:
        raise SystemExit(f"{shlex.join(line)} ended with exit code {done.returncode}")
    seconds = steps / speeds[-1] - iteration / speeds[0]
    return {"steps_per_second": (steps - iteration) / seconds}


def sb3_envs(workload: Workload, seed: int) -> Any:
    """Make a workload's environments; those of Atari as its documentation has them."""
    import ale_py  # noqa: F401 (it registers the games)
    import gymnasium
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize

    if workload.env_name == GAME:
        return VecFrameStack(make_atari_env(GAME, workload.num_envs, seed), 4)
    envs: Any = make_vec_env(partial(gymnasium.make, workload.env_name), workload.num_envs, seed)
    return VecNormalize(envs) if workload.normalizes else envs
