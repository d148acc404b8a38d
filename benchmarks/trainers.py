"""The trainers that are compared on the same work: main.py, and Stable-Baselines3's PPO."""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pkgutil import resolve_name
from statistics import fmean, median
from typing import Any, NamedTuple

from benchmarks import harness

GAME = "PongNoFrameskip-v4"
NUM_ENVS = 8
NUM_STEPS = 128
BATCH_SIZE = NUM_ENVS * NUM_STEPS
PHASES = ("seconds_collecting", "seconds_learning")
OURS = (
    f"--preset=none --model=mlp --hidden_size=64 --share_trunk=False --device=cpu {harness.QUIET}"
    f" --num_envs={NUM_ENVS} --num_steps={NUM_STEPS} --num_epochs=4 --num_minibatches=4"
    f" --num_workers={min(NUM_ENVS, harness.num_cores())} --learning_rate=2.5e-4 --gamma=0.99"
    " --gae_lambda=0.95 --clip_coef=0.1 --clip_value_coef=0.1 --value_coef=0.5 --entropy_coef=0.01"
    " --max_grad_norm=0.5 --normalize_advantages=minibatch --normalize_observations=False"
    " --normalize_rewards=False"
)
PIXELS = f"{OURS} --model=cnn --hidden_size=512 --share_trunk=True --clip_rewards=True"
# Of MlpPolicy the defaults are as ours: 2 x 64 tanh each for policy and value, orthogonal, and Adam
# with epsilon 1e-5.
SB3 = {
    "policy": "MlpPolicy",
    "n_steps": NUM_STEPS,
    "n_epochs": 4,
    "batch_size": BATCH_SIZE // 4,
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


class Iteration(NamedTuple):
    """An iteration of Stable-Baselines3."""

    end: float  # in seconds
    step: int
    mean_return: float | None  # of the last 100 episodes


def learn_by_sb3(envs: Any, steps: int, num_threads: int = 1, **settings: Any) -> list[Iteration]:
    """Train by Stable-Baselines3 in this process; a policy with an LSTM by SB3-Contrib."""
    import torch

    settings = {**SB3, **settings}
    algorithm: Any
    if "Lstm" in settings["policy"]:
        from sb3_contrib import RecurrentPPO as algorithm
    else:
        from stable_baselines3 import PPO as algorithm

    class WatchedPPO(algorithm):
        def train(self) -> None:
            super().train()
            returns = [episode["r"] for episode in self.ep_info_buffer or ()]
            mean_return = fmean(returns) if returns else None
            found.append(Iteration(time.perf_counter(), self.num_timesteps, mean_return))

    found: list[Iteration] = []
    torch.set_num_threads(num_threads)
    WatchedPPO(env=envs, **settings).learn(steps)
    envs.close()
    return found


def measured(found: list[Iteration], steps: int) -> harness.Result:
    """Return steps per second from the end of the first to that of the last, and its mean return.

    steps: of the whole run.
    """
    first, *_, last = found
    assert last.step == steps
    speed = (last.step - first.step) / (last.end - first.end)
    return {"steps_per_second": speed, "mean_return": last.mean_return}


def plain_maker(env_name: str) -> Callable[[], Any]:
    """Return what makes an environment that cannot render, as gymnasium makes it by default.

    env_name: an id, or module:Class.
    """
    import gymnasium

    if ":" in env_name:
        return resolve_name(env_name)
    return partial(gymnasium.make, env_name)


def run_sb3(env_name: str, steps: int, plain: bool, seed: int) -> harness.Result:
    """Measure steps per second and the last mean return of Stable-Baselines3, in this process.

    plain: on environments that cannot render.
    """
    import ale_py  # noqa: F401 (it registers the games)
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

    if env_name == GAME:
        envs: Any = VecFrameStack(make_atari_env(env_name, NUM_ENVS, seed), 4)
        cores = harness.num_cores()
        found = learn_by_sb3(envs, steps, cores, policy="CnnPolicy", seed=seed)
    else:
        made: str | Callable[[], Any] = env_name
        if plain:
            made = plain_maker(env_name)
        envs = make_vec_env(made, NUM_ENVS, vec_env_cls=DummyVecEnv)
        found = learn_by_sb3(envs, steps, seed=seed)
    return measured(found, steps)
