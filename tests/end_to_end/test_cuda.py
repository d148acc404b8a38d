"""Runs whose learner is on a GPU: python -m pytest -m cuda; skipped where there is none."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from ppo import load_policy, train
from ppo.components import Components
from ppo.config.config import Config
from ppo.config.settings import settings_of
from tests.running import ROOT, copy_tables, learn, make_components, metrics, run_main, worker_of

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]

SMALL = ("--preset=none", "--num_envs=6", "--num_steps=16", "--num_minibatches=2", "--num_epochs=2")
HIDDEN = "--env_name=examples.own_environment:HiddenVelocity"
PONG = ("--env_name=PongNoFrameskip-v4", "--screen_size=36", "--model=cnn_small")
RUNS = {
    "discrete": ("--env_name=CartPole-v1",),
    "continuous": ("--env_name=Pendulum-v1",),
    "nested-masks": ("--env_name=tests.environments:MaskedPair",),
    "parts-with-an-image": ("--env_name=tests.environments:Camera", "--image=color"),
    "lstm": (HIDDEN, "--model=lstm"),
    "cnn": PONG,
    "impala": (*PONG[:2], "--model=impala"),
    "lstm-of-images": (*PONG[:2], "--model=lstm"),
    "workers-act": (*PONG, "--inference=worker"),
    "lstm-acts-on-the-gpu": (HIDDEN, "--model=lstm", "--inference=learner"),
    "without-workers": (*PONG, "--num_workers=0"),
    "own-model": ("--env_name=CartPole-v1", "--model=examples.own_model:NormalizedActorCritic"),
    "curiosity": (
        "--env_name=MountainCar-v0",
        "--learner=examples.random_network_distillation:Curious",
    ),
    "frozen": ("--env_name=CartPole-v1", "--freeze=policy_trunk"),
    "histograms": ("--env_name=CartPole-v1", "--logger=tensorboard", "--histogram_every=1"),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_trains_resumes_and_leaves_a_policy(name: str, tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    line = (*RUNS[name], "--device=cuda", *SMALL, "--eval_episodes=1")
    done = run_main(*line, "--total_steps=288", f"--run_dir={run}", timeout=300)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    trusted = [flag for flag in RUNS[name] if ":" in flag and "NoFrameskip" not in flag]
    named = [flag for flag in trusted if flag.startswith(("--env", "--model", "--learner"))]
    done = run_main(f"--resume={run}", *named, "--total_steps=480", timeout=300)
    assert done.returncode == 0, done.stderr
    rows = metrics(Path(run))
    assert len(rows) == 5
    assert all(np.isfinite(float(row["loss"])) for row in rows)
    assert all(row["skipped_steps"] == "0" for row in rows)
    given = {flag[2:].partition("=")[0]: flag.partition("=")[2] for flag in named}
    policy = load_policy(run, given.get("env_name"), model=given.get("model"))
    assert np.isfinite(policy.weights).all()


def on(device: str, env_name: str, **values: Any) -> Components:
    """Make the parts of a run whose gradient steps are linear in the gradient, so that rounding is
    not amplified, and which acts on the CPU unless asked otherwise."""
    plain = {"inference": "worker", "precision": "float32", "optimizer": "torch.optim:SGD"}
    sizes = {"num_envs": 4, "num_steps": 32, "num_minibatches": 2, "total_steps": 10**5}
    return make_components(env_name, **{**plain, **sizes, "seed": 3, **values}, device=device)


@pytest.mark.parametrize(
    ("env_name", "values"),
    [
        ("Counting-v0", {}),
        ("Target-v0", {}),
        ("Target-v0", {"squash_actions": True}),
        ("Masked-v0", {}),
        ("Camera", {}),
        ("Counting-v0", {"model": "lstm", "hidden_size": 8}),
        ("Picture-v0", {"screen_size": 36, "model": "cnn_small"}),
    ],
)
def test_a_gpu_learns_what_the_cpu_learns(
    env_name: str, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    cpu, gpu = on("cpu", env_name, **values), on("cuda", env_name, **values)
    assert gpu.learner.weights.device.type == "cuda"
    gpu.learner.weights.copy_(cpu.learner.weights)
    before = cpu.learner.weights.clone()
    for parts in (cpu, gpu):
        parts.publish_weights()
    workers = [worker_of(parts, 4) for parts in (cpu, gpu)]
    for iteration in (1, 2):
        wanted, found = (
            learn(parts, worker.collect(iteration))
            for parts, worker in zip((cpu, gpu), workers, strict=True)
        )
        for name, table in copy_tables(cpu.rollout).items():
            np.testing.assert_allclose(
                copy_tables(gpu.rollout)[name], table, atol=1e-4, err_msg=name
            )
        for name, value in wanted.items():
            assert found[name] == pytest.approx(value, rel=1e-3, abs=1e-4), name
    moved = (cpu.learner.weights - before).abs().max().item()
    assert moved > 1e-5
    difference = (gpu.learner.weights.cpu() - cpu.learner.weights).abs().max().item()
    assert difference < 0.01 * moved


@pytest.mark.parametrize(
    ("env_name", "values"),
    [
        ("Counting-v0", {}),
        ("Masked-v0", {}),
        ("Counting-v0", {"model": "lstm", "hidden_size": 8}),
        ("Picture-v0", {"screen_size": 36, "model": "cnn_small"}),
    ],
)
@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_gpu_acts_as_workers_do(
    env_name: str, values: dict[str, Any], num_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    tables = []
    for inference in ("learner", "worker"):
        parts = on("cuda", env_name, **values, inference=inference, num_workers=num_workers)
        found = []
        with parts.make_pool() as pool:
            for iteration in (1, 2, 3):
                learn(parts, pool.collect(iteration))
                found.append(copy_tables(parts.rollout))
        tables.append(found)
    for ours, theirs in zip(*tables, strict=True):
        for name, expected in theirs.items():
            np.testing.assert_allclose(ours[name], expected, atol=1e-3, err_msg=name)


@pytest.mark.parametrize("name", ["discrete", "lstm", "cnn"])
def test_a_deterministic_run_is_repeated_and_resumed_bit_for_bit(name: str, tmp_path: Path) -> None:
    line = (*RUNS[name], "--device=cuda", "--torch_deterministic=True", *SMALL, "--eval_episodes=0")
    for run in ("one", "other"):
        done = run_main(*line, "--total_steps=480", f"--run_dir={tmp_path / run}", timeout=300)
        assert done.returncode == 0, done.stderr
    part = tmp_path / "part"
    done = run_main(
        *line, "--total_steps=480", "--num_iterations=3", f"--run_dir={part}", timeout=300
    )
    assert done.returncode == 0, done.stderr
    named = [flag for flag in RUNS[name] if "examples" in flag]
    done = run_main(f"--resume={part}", *named, "--num_iterations=none", timeout=300)
    assert done.returncode == 0, done.stderr
    wanted = load_file(tmp_path / "one/checkpoints/last.safetensors")
    for run in ("other", "part"):
        assert metrics(tmp_path / run) == metrics(tmp_path / "one")
        found = load_file(tmp_path / run / "checkpoints/last.safetensors")
        for table in wanted:
            if table.startswith(("model.", "optimizer.", "generator.")):
                assert torch.equal(found[table], wanted[table]), table


def test_a_run_moves_between_cpu_and_gpu(tmp_path: Path) -> None:
    run = f"{tmp_path}/run"
    line = ("--env_name=CartPole-v1", *SMALL, "--eval_episodes=0", f"--run_dir={run}")
    assert run_main(*line, "--device=cuda", "--total_steps=288").returncode == 0
    for device, steps in (("cpu", 480), ("cuda", 672)):
        done = run_main(f"--resume={run}", f"--device={device}", f"--total_steps={steps}")
        assert done.returncode == 0, done.stderr
    assert len(metrics(tmp_path / "run")) == 7


def test_auto_takes_the_gpu_for_images_and_the_cpu_for_vectors() -> None:
    config = settings_of(Config(env_name="PongNoFrameskip-v4", device="auto")).config
    assert (config.device, config.inference) == ("cuda", "learner")
    assert config.precision == "bfloat16"
    assert settings_of(Config(env_name="CartPole-v1", device="auto")).config.device == "cpu"


def test_a_teacher_teaches_on_the_gpu(tmp_path: Path) -> None:
    line = ("--env_name=CartPole-v1", *SMALL, "--total_steps=288", "--eval_episodes=0")
    assert run_main(*line, "--device=cuda", f"--run_dir={tmp_path}/teacher").returncode == 0
    flags = (f"--teacher={tmp_path}/teacher", "--model=gru", "--device=cuda")
    done = run_main(*line, *flags, f"--run_dir={tmp_path}/run")
    assert done.returncode == 0, done.stderr
    assert len(metrics(tmp_path / "run")) == 3


def test_training_from_python_leaves_the_gpus_random_state(tmp_path: Path) -> None:
    torch.zeros(1, device="cuda")
    before = torch.cuda.get_rng_state()
    flags = {"preset": "none", "num_envs": 2, "num_steps": 16, "total_steps": 64}
    summary = train("CartPole-v1", device="cuda", run_dir=str(tmp_path / "run"), verbose=0, **flags)
    assert summary.steps == 64
    assert torch.equal(torch.cuda.get_rng_state(), before)


def run_ranks(count: int, *arguments: str) -> subprocess.CompletedProcess:
    """Run main.py by torchrun, to its end."""
    program = ("-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={count}")
    line = [sys.executable, *program, "main.py", *arguments]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are not two GPUs")
def test_ranks_train_on_a_gpu_each(tmp_path: Path) -> None:
    line = ("--env_name=CartPole-v1", "--device=cuda", *SMALL, "--total_steps=288")
    done = run_ranks(2, *line, f"--run_dir={tmp_path}/run")
    assert done.returncode == 0, done.stderr
    assert len(metrics(tmp_path / "run")) == 3


def test_a_rank_without_a_gpu_of_its_own_is_told_so(tmp_path: Path) -> None:
    more = torch.cuda.device_count() + 1
    sizes = (f"--num_envs={more * 2}", "--num_steps=16", "--num_minibatches=1")
    line = ("--env_name=CartPole-v1", "--preset=none", "--device=cuda", *sizes)
    done = run_ranks(more, *line, f"--run_dir={tmp_path}/run")
    assert done.returncode != 0
    assert f"rank {more - 1} of this machine has no GPU of its own: start {more - 1}" in done.stderr


def test_memory_that_does_not_suffice_is_said_in_a_sentence(tmp_path: Path) -> None:
    line = ("--env_name=CartPole-v1", "--device=cuda", *SMALL, "--total_steps=288")
    done = run_main(*line, "--model=tests.faulty_models:Huge", f"--run_dir={tmp_path}/run")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "--num_minibatches" in done.stderr
    assert (tmp_path / "run/checkpoints/last.safetensors").exists()
