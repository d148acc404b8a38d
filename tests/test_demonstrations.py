"""Demonstrations from end to end, as a user begins a run with them."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ppo
from ppo.demonstrations.files import load_demonstrations
from ppo.demonstrations.format import read_npz, write_npz
from ppo.demonstrations.minari_data import read_minari
from ppo.run.checkpoint import load
from tests.environments import Identity, Masked
from tests.running import Call, metrics, run_main
from tests.test_demonstration_file import Trap, assert_same, example
from tests.test_distributed import launch

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


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mlp", "lstm"])
def test_training_continues_from_the_clone(model: str, cartpole: Path, tmp_path: Path) -> None:
    flags = [*FLAGS, f"--model={model}", "--total_steps=2560", "--num_minibatches=2"]
    returns = []
    for name, more in (("zero", []), ("clone", [f"--demonstrations={cartpole}"])):
        done = run_main(*flags, *more, f"--run_dir={tmp_path / name}")
        assert done.returncode == 0, done.stderr
        returns.append(float(metrics(tmp_path / name)[-1]["episode_return_mean"]))
    assert returns[1] > 2 * returns[0]


def test_progress_is_shown(cartpole: Path, tmp_path: Path, call: Call, monkeypatch: Any) -> None:
    monkeypatch.setattr("ppo.demonstrations.cloning.SECONDS_BETWEEN_LINES", 0)
    flags = (*FLAGS, f"--demonstrations={cartpole}", "--total_steps=0", "--clone_epochs=2")
    code, _, err = call(*flags, f"--run_dir={tmp_path / 'run'}")
    assert code == 0
    first, second = err.splitlines()
    assert first.startswith("cloning: epoch 1 of 2, loss 0.")
    assert "held out: loss 0." in second
    assert second.endswith("0 s left")


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
    for step, num_saved in ((20, 0), (230, 3)):
        environment = {**os.environ, "KILL_AT": str(step)}
        done = run_main(*flags, f"--run_dir={run}", env=environment)
        assert done.returncode == -signal.SIGKILL
        assert len([*run.glob("checkpoints/0*")]) == num_saved
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
    good = read_npz(cartpole)
    tables = dict(np.load(cartpole))
    missing = tmp_path / "missing.npz"
    trap = tmp_path / "trap.npz"
    np.savez(trap, **{**tables, "actions": np.array([Trap()], object)})
    cut = tmp_path / "cut.npz"
    cut.write_bytes(cartpole.read_bytes()[:-400])
    other = tmp_path / "other.npz"
    write_npz(other, example())
    outside = tmp_path / "outside.npz"
    np.savez(outside, **{**tables, "actions": good.actions[""] + 1})
    empty = tmp_path / "empty.npz"
    np.savez(empty, **{name: table[:0] for name, table in tables.items()})
    masks = tmp_path / "masks.npz"
    np.savez(masks, **tables, action_masks=np.ones((len(tables["observations"]), 2)))
    for path, words in (
        (missing, "No such file"),
        (trap, "pickled objects"),
        (cut, "damaged"),
        (other, "observations"),
        (outside, "inside of Discrete(2)"),
        (empty, "empty"),
        (masks, "action_masks, which the environment does not give"),
        (tmp_path / "x.json", "expected FILE.npz or minari:ID"),
    ):
        run = tmp_path / "run"
        code, _, err = call(*FLAGS, f"--demonstrations={path}", f"--run_dir={run}")
        assert code == 2, path
        assert err.count("\n") == 1
        assert words in err
        assert f"--demonstrations={path}" in err
        assert not run.exists()
    assert not Trap.sprung
    code, _, err = call(*FLAGS, "--total_steps=0")
    assert (code, err.count("\n")) == (2, 1)
    assert "--total_steps=0" in err


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


@pytest.fixture
def minari(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Minari with a folder of its own."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    pytest.importorskip("h5py")
    return pytest.importorskip("minari")


@pytest.mark.parametrize("name", ["Box", "Dict", "Tuple", "Grid", "MultiBinary"])
def test_datasets_of_minari_hold_the_same(name: str, minari: Any, tmp_path: Path) -> None:
    found = []
    for path in (f"minari:{name.lower()}/random-v0", str(tmp_path / "x.npz")):
        env = Identity(name, name)
        env.action_space.seed(0)
        ppo.record(lambda seen, env=env: env.action_space.sample(), env, 3, path)
        found.append(load_demonstrations(path))
    assert_same(*found)
    dataset = minari.load_dataset(f"{name.lower()}/random-v0")
    assert dataset.total_steps == 15
    assert dataset.action_space == Identity(name, name).action_space


def test_masks_and_ends_go_through_minari(minari: Any, tmp_path: Path) -> None:
    found = []
    for path in ("minari:masked-v0", str(tmp_path / "x.npz")):
        env = Masked()

        def act(seen: Any, env: Any = env) -> int:
            return int(np.argmax(env.allowed)) - 1

        ppo.record(act, env, 3, path)
        found.append(
            read_minari("masked-v0") if path.startswith("minari:") else read_npz(Path(path))
        )
    assert found[0].action_masks
    assert_same(*found)


def test_a_run_begins_with_a_dataset_of_minari(
    minari: Any, cartpole_copy: Path, tmp_path: Path, call: Call
) -> None:
    dataset = "minari:cartpole/test-v0"
    evaluate = ("evaluate", str(cartpole_copy), "--episodes=3", f"--record={dataset}")
    code, out, err = call(*evaluate)
    assert (code, err) == (0, "")
    assert f"demonstrations: {dataset}" in out
    code, _, err = call(*evaluate)
    assert (code, "nothing is overwritten" in err) == (2, True)
    flags = (*FLAGS, "--total_steps=0", f"--run_dir={tmp_path / 'clone'}", "--report=False")
    code, out, err = call(*flags, f"--demonstrations={dataset}")
    assert code == 0, err
    assert "cloned 3 episodes" in out
    code, _, err = call(*flags, "--demonstrations=minari:none-v0")
    assert code == 2
    assert "minari download none-v0" in err
    code, _, err = call(*evaluate[:-1], "--record=minari:no good")
    assert (code, err.count("\n")) == (2, 1)


def test_a_damaged_dataset_of_minari_is_refused(minari: Any, tmp_path: Path) -> None:
    ppo.record(balance, "CartPole-v1", 2, "minari:x-v0")
    (path,) = (tmp_path / "datasets").glob("**/main_data.hdf5")
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], b"", bytes(len(content))):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"damaged|not here"):
            read_minari("x-v0")


def test_a_dataset_larger_than_memory_is_not_read(minari: Any, monkeypatch: Any) -> None:
    ppo.record(balance, "CartPole-v1", 2, "minari:x-v0")
    monkeypatch.setattr("ppo.demonstrations.minari_data.physical_memory", lambda: 10_000)
    with pytest.raises(ValueError, match="quarter"):
        read_minari("x-v0")
