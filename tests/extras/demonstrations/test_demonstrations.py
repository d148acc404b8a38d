"""Demonstrations from end to end, as a user begins a run with them."""

import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

import ppo
from ppo.extras.demonstrations.format import write_npz
from ppo.run.checkpoint import load
from tests.environments import Masked
from tests.extras.demonstrations.test_demonstration_file import Trap, example
from tests.extras.distributed.test_distributed import launch
from tests.running import Call, metrics, run_main

FLAGS = (
    "--env_name=CartPole-v1",
    "--preset=none",
    "--num_envs=4",
    "--num_steps=64",
    "--num_workers=1",
    "--eval_episodes=0",
)


def balance(seen: np.ndarray) -> int:
    """Play CartPole well: push to where the pole is falling."""
    return int(seen[2] + 0.3 * seen[3] > 0)


@pytest.fixture(scope="session")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Demonstrations of CartPole."""
    path = tmp_path_factory.mktemp("demonstrations") / "cartpole.npz"
    returns = ppo.record(balance, "CartPole-v1", 4, path)
    assert min(returns) > 300
    return path


def test_a_run_may_only_clone_and_be_trained_later(
    cartpole: Path, tmp_path: Path, call: Call
) -> None:
    run = tmp_path / "run"
    begin = (*FLAGS, f"--demonstrations={cartpole}", "--total_steps=0", f"--run_dir={run}")
    done = run_main(*begin, "--eval_episodes=10", "--report=True")
    assert done.returncode == 0
    assert all(line.startswith("cloning: epoch") for line in done.stderr.splitlines())
    assert "cloned 4 episodes" in done.stdout
    assert "accuracy 9" in done.stdout
    assert "metrics.csv" not in done.stdout
    summary = json.loads((run / "summary.json").read_text())
    assert summary["steps"] == 0
    assert summary["evaluation"]["mean"] > 250
    shutil.move(cartpole, tmp_path / "moved.npz")  # what is resumed does not need it
    try:
        code, shown, errors = call(f"--resume={run}", "--total_steps=512", "--eval_episodes=0")
    finally:
        shutil.move(tmp_path / "moved.npz", cartpole)
    assert code == 0, errors
    assert "cloned" not in shown
    assert [row["step"] for row in metrics(run)] == ["256", "512"]


def last_checkpoint(run: Path) -> bytes:
    return (run / "checkpoints" / "last.safetensors").read_bytes()


@pytest.mark.slow
def test_killed_while_it_clones_and_later_a_run_comes_to_the_same_bytes(
    cartpole: Path, tmp_path: Path
) -> None:
    """There are some 70 gradient steps of cloning, and 16 in each iteration after it."""
    flags = (
        *FLAGS,
        "--model=tests.faulty_models:Killed",
        f"--demonstrations={cartpole}",
        "--clone_epochs=2",
        "--total_steps=3840",
        "--checkpoint_every=3",
        "--resume=auto",
    )
    done = run_main(*flags, f"--run_dir={tmp_path / 'whole'}")
    assert done.returncode == 0, done.stderr
    run = tmp_path / "killed"
    for step, is_saved in ((20, False), (230, True)):
        environment = {**os.environ, "KILL_AT": str(step)}
        done = run_main(*flags, f"--run_dir={run}", env=environment)
        assert done.returncode == -signal.SIGKILL
        assert any(run.glob("checkpoints/0*")) == is_saved
    done = run_main(*flags, f"--run_dir={run}")
    assert done.returncode == 0, done.stderr
    assert "resumes after" in done.stdout
    assert last_checkpoint(run) == last_checkpoint(tmp_path / "whole")


@pytest.mark.slow
def test_two_ranks_begin_with_the_clone_of_one(cartpole: Path, tmp_path: Path) -> None:
    flags = (*FLAGS, f"--demonstrations={cartpole}", "--total_steps=0", "--clone_epochs=2")
    assert run_main(*flags, f"--run_dir={tmp_path / 'one'}").returncode == 0
    two = [flag for flag in flags if "num_workers" not in flag]
    with launch(*two, "--report=False", f"--run_dir={tmp_path / 'two'}") as process:
        process.communicate(timeout=120)
    assert process.returncode == 0
    one, other = (
        load(tmp_path / name / "checkpoints" / "last.safetensors") for name in ("one", "two")
    )
    names = [name for name in one if name.startswith(("model.", "normalize_"))]
    assert len(names) > 10
    for name in names:
        np.testing.assert_array_equal(one[name], other[name])


def test_demonstrations_that_cannot_be_used_are_refused_in_a_sentence(
    cartpole: Path, tmp_path: Path, call: Call
) -> None:
    tables = dict(np.load(cartpole))
    trap, other, outside, masks = (tmp_path / f"{x}.npz" for x in ("trap", "other", "far", "mask"))
    np.savez(trap, **{**tables, "actions": np.array([Trap()], object)})
    write_npz(other, example())
    np.savez(outside, **{**tables, "actions": tables["actions"] + 1})
    np.savez(masks, **tables, action_masks=np.ones((len(tables["observations"]), 2)))
    for path, words in (
        (trap, "pickled objects"),
        (other, "observations"),
        (outside, "inside of Discrete(2)"),
        (masks, "action_masks, which the environment does not give"),
        (tmp_path / "x.json", "expected FILE.npz"),
    ):
        run = tmp_path / "run"
        code, _, err = call(*FLAGS, f"--demonstrations={path}", f"--run_dir={run}")
        assert code == 2, path
        assert err.count("\n") == 1
        assert words in err
        assert f"--demonstrations={path}" in err
        assert not run.exists()
    assert not Trap.sprung


def test_an_action_that_its_mask_forbids_is_refused(tmp_path: Path, call: Call) -> None:
    env = Masked()
    path = tmp_path / "masked.npz"
    ppo.record(lambda seen: int(np.argmax(env.allowed)) - 1, env, 3, path)
    tables = dict(np.load(path))
    np.savez(tmp_path / "wrong.npz", **{**tables, "action_masks": ~tables["action_masks"]})
    flags = ("--env_name=tests.environments:Masked-v0", "--preset=none", "--total_steps=0")
    sizes = ("--num_envs=2", "--num_steps=8", "--num_workers=0", "--eval_episodes=0")
    for name, words in (("wrong", "not allowed"), ("masked", "")):
        run = f"--run_dir={tmp_path / name}"
        code, _, err = call(*flags, *sizes, f"--demonstrations={tmp_path / name}.npz", run)
        assert code == (2 if words else 0)
        assert words in err
    tables["actions"] = (tables["actions"] + 3) % 4 - 1
    np.savez(tmp_path / "other.npz", **tables)
    code, _, err = call(*flags, *sizes, f"--demonstrations={tmp_path / 'other.npz'}")
    assert code == 2
    assert "not allowed" in err
