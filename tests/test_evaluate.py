"""The command evaluate, in real processes as a new user would call it."""

import json
import os
import re
from pathlib import Path

import imageio.v3
import numpy as np
import pytest

from ppo import load_policy
from ppo.run.reader import read_run
from ppo.tools.overview import overview
from tests.running import Call, run_main


def test_an_evaluation_is_that_of_the_policy_and_is_added_to_a_file(cartpole_copy: Path) -> None:
    for flags in (["--episodes=12"], ["--episodes=5", "--stochastic", "--seed=3", "--num_envs=2"]):
        done = run_main("evaluate", str(cartpole_copy), *flags)
        assert (done.returncode, done.stderr) == (0, "")
    first, second = json.loads((cartpole_copy / "evaluation.json").read_text())
    checkpoint = cartpole_copy / "checkpoints" / "000000005120.safetensors"
    expected = load_policy(checkpoint).evaluate(12)
    assert {name: first[name] for name in vars(expected)} == vars(expected)
    assert (first["checkpoint"], first["seed"], first["deterministic"]) == (
        str(checkpoint),
        0,
        True,
    )
    assert first["median"] == np.median(expected.returns)
    low, high = first["interval_95"]
    assert low <= first["mean"] <= high
    assert (second["episodes"], second["deterministic"], second["seed"]) == (5, False, 3)
    assert second["returns"] != first["returns"][:5]
    shown = overview(read_run(cartpole_copy))["return in evaluation"]
    assert shown.startswith(f"{first['mean']:,.1f} ")  # not that of random actions


def test_a_run_is_found_by_its_name_and_a_checkpoint_by_its_file(
    cartpole_copy: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.chdir(cartpole_copy.parent)
    (cartpole_copy.parent / "runs").mkdir()
    cartpole_copy.rename(cartpole_copy.parent / "runs" / "named")
    checkpoints = Path("runs/named/checkpoints")
    for name, step in (
        ("named", 5120),
        (str(checkpoints / "last.safetensors"), 5120),
        (str(sorted(checkpoints.glob("0*"))[0]), 2560),
    ):
        code, out, err = call("evaluate", name, "--episodes=1", "--output=new.json")
        assert (code, err) == (0, "")
        entry = json.loads(Path("new.json").read_text())[-1]
        assert Path(entry["checkpoint"]).resolve().stem == f"{step:012d}"
        assert entry["interval_95"] is None
        assert f"return {entry['mean']:.1f}" in out


@pytest.mark.parametrize("suffix", [".mp4", pytest.param(".gif", marks=pytest.mark.slow)])
def test_a_video_shows_every_step(cartpole_run: Path, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    done = run_main(
        "evaluate",
        str(cartpole_run),
        "--episodes=2",
        f"--video={path}",
        f"--output={tmp_path / 'e.json'}",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"video: {path}" in done.stdout
    (entry,) = json.loads((tmp_path / "e.json").read_text())
    frames = imageio.v3.imread(path, index=None if suffix == ".mp4" else ...)
    assert frames.shape[1:] == (400, 600, 3)
    if suffix == ".mp4":  # a gif joins frames that are alike
        assert len(frames) == sum(entry["lengths"]) + 2
        assert imageio.v3.immeta(path)["codec"] == "h264"
    assert len(np.unique(frames[:, ::20, ::20].reshape(len(frames), -1), axis=0)) > 5  # it moves
    assert [file.name for file in tmp_path.glob(".tmp-*")] == []


@pytest.mark.parametrize("name", ["/dev/full", "/dev/null", "fifo", "folder"])
def test_results_are_added_to_regular_files_only(
    name: str, cartpole_run: Path, tmp_path: Path
) -> None:
    output = tmp_path / name
    if name == "fifo":
        os.mkfifo(output)
    elif name == "folder":
        output.mkdir()
    done = run_main("evaluate", str(cartpole_run), f"--output={output}", timeout=20)
    assert (done.returncode, done.stdout) == (2, "")
    said = (
        rf"--output={output} cannot be (added|written) to \(.* is (not a regular file|a folder)\)"
    )
    assert re.fullmatch(f"error: {said}: give another (file|name)\n", done.stderr)


def test_results_that_cannot_be_written_are_shown(cartpole_run: Path, tmp_path: Path) -> None:
    output = tmp_path / "e.json"
    (tmp_path / ".tmp-e.json").mkdir()  # where it would be written first
    done = run_main("evaluate", str(cartpole_run), "--episodes=1", f"--output={output}")
    assert done.returncode == 1
    assert "return" in done.stdout
    said = f"--output={output} cannot be written (Is a directory): give another file"
    assert done.stderr == f"error: {said}\n"
