"""Acting by workers or by the learner, before an update or during it (--inference, --overlap)."""

import dataclasses
import signal
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ppo.algorithm.learner import Learner
from ppo.components import Components
from ppo.config.config import Config
from ppo.envs.pool import WorkerPool
from ppo.errors import ConfigError
from ppo.monitor import Monitor
from ppo.run.checkpoint import copy_state
from ppo.run.state import restore, snapshot
from tests.running import (
    ROOT,
    command,
    copy_tables,
    learn,
    make_components,
    metrics,
    run_main,
    worker_of,
)

WORLDS = {
    "mlp": ("Counting-v0", {"num_envs": 5}),
    "lstm": (
        "Counting-v0",
        {"model": "lstm", "hidden_size": 8, "num_envs": 5, "num_minibatches": 2},
    ),
    "gru": (
        "Counting-v0",
        {"model": "gru", "hidden_size": 8, "num_envs": 5, "num_minibatches": 2},
    ),
    "one": ("Counting-v0", {"num_envs": 1}),
    "masks": ("Masked-v0", {"num_envs": 3}),
    "cnn": ("PongNoFrameskip-v4", {"model": "cnn", "num_envs": 3, "precision": "float32"}),
}


def rollouts(name: str, inference: str, num_workers: int) -> list[dict[str, np.ndarray]]:
    """Return the tables of three rollouts, with learning between them."""
    env_name, values = WORLDS[name]
    sizes = {"num_steps": 8, "total_steps": 10**5, "num_minibatches": 2, "num_epochs": 1}
    parts = make_components(env_name, **{**sizes, **values}, inference=inference, seed=3)
    tables = []
    with WorkerPool(
        parts.make_worker, parts.config.num_envs, num_workers, sampler=parts.sampler
    ) as workers:
        for iteration in (1, 2, 3):
            learn(parts, workers.collect(iteration))
            tables.append(copy_tables(parts.rollout))
    return tables


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("name", "num_workers"),
    [(name, count) for name in WORLDS for count in (0, 1, 2) if (name, count) != ("one", 2)],
)
def test_the_learner_acts_as_workers_do(name: str, num_workers: int) -> None:
    for ours, theirs in zip(
        rollouts(name, "learner", num_workers), rollouts(name, "worker", 0), strict=True
    ):
        assert ours.keys() == theirs.keys()
        for table, expected in theirs.items():
            np.testing.assert_allclose(ours[table], expected, atol=1e-4, err_msg=table)


@pytest.mark.slow
def test_a_run_is_the_same_with_actions_of_workers_or_of_the_learner(tmp_path: Path) -> None:
    flags = (
        "--env_name=CartPole-v1",
        "--num_iterations=3",
        "--eval_episodes=0",
        "--logger=none",
        "--num_envs=6",
    )
    for inference in ("worker", "learner"):
        folder = f"--run_dir={tmp_path / inference}"
        done = run_main(*flags, f"--inference={inference}", "--num_workers=2", folder)
        assert (done.returncode, done.stderr) == (0, "")
    ours, theirs = (metrics(tmp_path / inference) for inference in ("learner", "worker"))
    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        assert one["episode_return_mean"] == other["episode_return_mean"]
        assert float(one["loss"]) == pytest.approx(float(other["loss"]), abs=1e-4)


def overlapped(num_iterations: int) -> list[dict[str, torch.Tensor]]:
    """Return the weights with which each update began, its batch, and its rollout."""
    parts = make_components(
        "Counting-v0", num_envs=4, num_steps=16, overlap=True, num_workers=2, total_steps=10**5
    )
    seen = []
    update = parts.learner.update

    def note(batch: dict[str, np.ndarray], iteration: int) -> dict[str, float]:
        kept = {name: table.copy() for name, table in batch.items()}  # views of the rollout
        tables = copy_tables(parts.rollout)
        seen.append({"weights": parts.learner.weights.clone(), "batch": kept, **tables})
        return update(batch, iteration)

    parts.learner.update = note  # type: ignore[method-assign]
    with WorkerPool(parts.make_worker, 4, 2) as workers:
        for iteration in range(1, num_iterations + 1):
            info = workers.collect(iteration)
            learn(parts, info, lambda number=iteration + 1: workers.collect_async(number))
    return [{**one, "learner": parts.learner} for one in seen]


def test_an_overlapped_rollout_is_of_the_weights_before_and_learned_from_as_such() -> None:
    first, second, third, fourth = overlapped(4)
    learner = first["learner"]
    acted = [first, first, second, third]  # whose weights acted in each
    for one, by in zip((first, second, third, fourth), acted, strict=True):
        learner.weights.copy_(by["weights"])
        batch = {name: one["batch"][name] for name in ("observations", "actions")}
        log_probs, values = learner.evaluate(batch)
        np.testing.assert_allclose(one["batch"]["log_probs"], log_probs, rtol=1.3e-6, atol=1e-5)
        np.testing.assert_allclose(one["batch"]["values"], values, rtol=1.3e-6, atol=1e-5)
    assert not torch.equal(second["weights"], first["weights"])


def test_overlapped_rollouts_join_without_a_gap() -> None:
    seen = overlapped(5)
    for before, after in pairwise(seen):
        np.testing.assert_array_equal(before["observations"][-1], after["observations"][0])


@pytest.mark.slow
def test_overlap_repeats_itself_and_resumes_exactly(tmp_path: Path) -> None:
    flags = [
        "--env_name=CartPole-v1",
        "--preset=none",
        "--overlap=True",
        "--num_workers=2",
        "--logger=none",
    ]
    flags += ["--num_envs=4", "--num_steps=32", "--eval_episodes=0", "--checkpoint_every=1"]
    for name in ("one", "other"):
        assert (
            run_main(*flags, "--total_steps=1280", f"--run_dir={tmp_path / name}").returncode == 0
        )
    assert metrics(tmp_path / "one") == metrics(tmp_path / "other")
    part = tmp_path / "part"
    assert (
        run_main(*flags, "--total_steps=1280", "--num_iterations=4", f"--run_dir={part}").returncode
        == 0
    )
    done = run_main(f"--resume={part}", "--num_iterations=none")
    assert done.returncode == 0, done.stderr
    assert metrics(part) == metrics(tmp_path / "one")


def test_a_run_that_no_longer_overlaps_continues_from_its_newest_weights() -> None:
    values = {"num_envs": 4, "num_steps": 16, "num_workers": 2, "total_steps": 10**5}
    before = make_components("Counting-v0", **values, overlap=True)
    with WorkerPool(before.make_worker, 4, 2) as workers:
        for iteration in (1, 2):
            learn(before, workers.collect(iteration))
    assert not np.array_equal(before.buffers.behaviour_weights, before.learner.weights)
    state = copy_state(snapshot(before, Monitor(before, None)))  # type: ignore[arg-type]
    after = make_components("Counting-v0", **values)
    assert restored(after, state) == ["overlap=False instead of True"]
    np.testing.assert_array_equal(after.buffers.behaviour_weights, before.learner.weights)
    again = make_components("Counting-v0", **values, overlap=True)
    assert restored(again, state) == []
    np.testing.assert_array_equal(again.buffers.behaviour_weights, before.buffers.behaviour_weights)


def restored(parts: Components, state: dict[str, Any]) -> list[str]:
    """Bring the parts of a new run to a state; return the differences."""
    return restore(parts, Monitor(parts, None), state)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_worker_lost_while_collecting_ahead_is_replaced() -> None:
    parts = make_components(
        "Counting-v0", num_envs=4, num_steps=5000, overlap=True, num_workers=2, total_steps=10**5
    )
    events: list[str] = []
    with WorkerPool(
        parts.make_worker, 4, 2, on_event=lambda kind, **_: events.append(kind)
    ) as workers:
        learn(parts, workers.collect(1))
        workers.collect_async(2)
        workers.workers[1].process.kill()
        info = workers.collect(2)
        assert events[0] == "worker_lost"
        assert info.reset_envs == [2, 3]
        learn(parts, info)
        learn(parts, workers.collect(3))
        assert "worker_replaced" in events


@pytest.mark.slow_but_first
@pytest.mark.parametrize("received", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_collecting_ahead_saves_and_ends_the_run(
    received: signal.Signals, tmp_path: Path
) -> None:
    flags = (
        "--env_name=CartPole-v1",
        "--overlap=True",
        "--total_steps=100000000",
        f"--run_dir={tmp_path}/run",
    )
    process = subprocess.Popen(
        command(*flags), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not (tmp_path / "run" / "metrics.csv").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(received)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == (143 if received == signal.SIGTERM else 130)
    assert errors.startswith(f"error: {received.name} after step")


@pytest.mark.slow
def test_cartpole_is_learned_with_overlap(tmp_path: Path) -> None:
    done = run_main(
        "--env_name=CartPole-v1",
        "--overlap=True",
        "--total_steps=40960",
        f"--run_dir={tmp_path}/run",
    )
    assert done.returncode == 0
    assert max(float(row["episode_return_mean"] or 0) for row in metrics(tmp_path / "run")) > 100


@pytest.mark.parametrize("values", [{"num_workers": 0}, {"inference": "learner"}])
def test_what_cannot_overlap_is_refused(values: dict) -> None:
    with pytest.raises(ConfigError, match="--overlap is for worker processes that act"):
        Config(overlap=True, **values)


def test_compiling_is_refused_where_it_does_not_pay() -> None:
    with pytest.raises(ConfigError, match="--compile=True is for --device=cuda"):
        make_components("Bandit-v0", compile=True)


def test_compiling_is_refused_where_bits_should_repeat() -> None:
    with pytest.raises(ConfigError, match="leave it or --torch_deterministic out"):
        Config(compile=True, torch_deterministic=True)


@pytest.mark.slow
def test_a_compiled_loss_has_the_same_gradient() -> None:
    parts = make_components(
        "Picture-v0", screen_size=36, num_envs=2, num_steps=8, precision="float32"
    )

    info = worker_of(parts, 2).collect(1)
    batch = parts.make_batch(parts.finish_collect(1, info))
    gradients = []
    for compiled in (False, True):
        learner = Learner(parts.model, dataclasses.replace(parts.config, compile=compiled))
        learner.compute_gradients(batch)
        gradients.append(learner.gradients.clone())
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-5)
