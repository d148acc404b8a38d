"""Batches whose tensors are on a device: on the CPU, and, where there is one, on a GPU."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from benchmarks.environments.torch_cartpole import TorchCartPole
from benchmarks.parts.workloads import GAME
from ppo.components import Components
from ppo.config.config import Config
from ppo.config.settings import settings_of
from ppo.extras.vector.adapters import adapt
from ppo.extras.vector.batches import SameStep
from tests.running import learn, metrics, run_main

CUDA = (
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
)
DEVICES = ["cpu", pytest.param("cuda", marks=CUDA)]
NAME = "benchmarks.environments.torch_cartpole:TorchCartPole"
N = 16


def on(device: str, **flags: Any) -> Components:
    """Make the parts of a run of TorchCartPoles, whose tensors and learner are on a device."""
    about = {"env_name": NAME, "env_kwargs": {"device": device}, "device": device}
    sizes = {"num_envs": N, "num_steps": 32, "total_steps": 32 * N * 2, "num_workers": 0}
    return Components(settings_of(Config(**{**about, **sizes, **flags})))


@pytest.mark.parametrize("device", DEVICES)
def test_the_world_of_tensors_is_gymnasiums_cartpole(device: str) -> None:
    world = TorchCartPole(N, device)
    batch = adapt(world)
    assert type(batch) is SameStep
    first, _ = batch.reset([7] * N)
    assert (np.abs(first) <= 0.05).all()
    rng = np.random.default_rng(0)
    envs: list[Any] = [gymnasium.make("CartPole-v1").unwrapped for _ in range(N)]
    for env, state in zip(envs, first, strict=True):
        env.reset()
        env.state = state.astype(float)
    num_ends = 0
    for _ in range(60):
        actions = rng.integers(0, 2, N)
        seen, rewards, terminations, truncations, _ = batch.step(actions)
        assert batch.device == world.states.device
        assert (rewards == 1).all()
        assert not truncations.any()
        results = [env.step(action) for env, action in zip(envs, actions, strict=True)]
        np.testing.assert_allclose(seen, [result[0] for result in results], rtol=1e-3, atol=1e-4)
        assert terminations.tolist() == [result[2] for result in results]
        if terminations.any():
            num_ends += 1
            fresh, _ = batch.restart(terminations, [0] * int(terminations.sum()))
            for i in np.flatnonzero(terminations):
                envs[i].reset()
                envs[i].state = fresh[i].astype(float)
        for env, state in zip(envs, world.states.cpu().numpy(), strict=True):
            env.state = state.astype(float)  # so that rounding does not add up
    assert num_ends > 3
    assert batch.note == ""


@pytest.mark.parametrize("device", DEVICES)
def test_a_batch_on_a_device_is_learned_from(device: str) -> None:
    parts = on(device)
    before = parts.learner.weights.clone()
    assert before.device.type == device
    with parts.make_pool() as pool:
        learn(parts, pool.collect(1))
    rollout = parts.rollout
    ended = rollout.terminations | rollout.truncations
    assert ended.any()
    assert (np.abs(rollout.observations[1:][ended]) <= 0.05).all()  # the next episodes' first
    assert parts.learner.weights.isfinite().all()
    assert not torch.equal(parts.learner.weights, before)
    assert parts.learner.weights.device.type == device


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("name", ["CartPole-v1", GAME, "tests.teams:Relay", "tests.teams:sync"])
def test_a_run_whose_learner_is_on_a_gpu_trains_and_resumes(name: str, tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    sizes = ("--num_envs=6", "--num_steps=16", "--num_minibatches=2", "--num_epochs=2")
    line = (f"--env_name={name}", "--device=cuda", "--preset=none", *sizes, "--eval_episodes=1")
    done = run_main(*line, "--total_steps=288", f"--run_dir={run}")
    assert done.returncode == 0, done.stderr
    done = run_main(f"--resume={run}", f"--env_name={name}", "--total_steps=480")
    assert done.returncode == 0, done.stderr
    assert len(metrics(Path(run))) == 5
