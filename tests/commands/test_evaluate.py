"""The command evaluate, in real processes as a new user would call it."""

import errno
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ppo import Config, load_policy, train
from ppo.__main__ import main
from ppo.commands import evaluate
from ppo.commands.evaluate import print_table
from ppo.run.checkpoint import load, save
from ppo.run.summary import Evaluation
from ppo.system.files import load_json
from tests.running import TINY, Call, at_once, run_main


def test_an_evaluation_is_that_of_the_policy_and_is_added_to_a_file(
    cartpole_copy: Path, call: Call
) -> None:
    for flags in (["--episodes=12"], ["--episodes=5", "--stochastic", "--seed=3", "--num_envs=2"]):
        code, _, errors = call("evaluate", str(cartpole_copy), *flags)
        assert (code, errors) == (0, "")
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


def test_evaluations_at_once_are_all_kept(
    cartpole_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_slowly(path: Path) -> Any:
        try:
            return load_json(path)
        finally:
            time.sleep(0.5)

    monkeypatch.setattr("ppo.commands.evaluate.load_json", load_slowly)
    arguments = ["evaluate", str(cartpole_copy), "--episodes=1"]
    assert at_once(main, *[arguments] * 3) == [0] * 3
    assert len(json.loads((cartpole_copy / "evaluation.json").read_text())) == 3
    assert not list(cartpole_copy.glob(".tmp-*"))


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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["/dev/full", "fifo", "folder"])
def test_results_are_added_to_regular_files_only(
    name: str, cartpole_run: Path, tmp_path: Path
) -> None:
    output = tmp_path / name
    if name == "fifo":
        os.mkfifo(output)
    elif name == "folder":
        output.mkdir()
    done = run_main("evaluate", str(cartpole_run), f"--output={output}", timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    said = (
        rf"--output={output} cannot be (added|written) to \(.* is (not a regular file|a folder)\)"
    )
    assert re.fullmatch(f"error: {said}: give another (file|name)\n", done.stderr)


def test_several_checkpoints_make_a_table_of_the_same_episodes(
    cartpole_copy: Path, tmp_path: Path, call: Call
) -> None:
    early, *_, late = sorted((cartpole_copy / "checkpoints").glob("0*"))
    milestone = cartpole_copy / "milestones" / early.name
    milestone.parent.mkdir()
    early.rename(milestone)
    policy = tmp_path / "policy.safetensors"
    load_policy(late).save(policy)
    files = [str(path) for path in (late, milestone, policy)]
    code, out, err = call("evaluate", *files, "--episodes=6", "--seed=3")
    assert (code, err) == (0, "")
    entries = json.loads((cartpole_copy / "evaluation.json").read_text())
    entries += json.loads((tmp_path / "evaluation.json").read_text())
    assert [entry["checkpoint"] for entry in entries] == files
    for entry in entries:
        expected = load_policy(entry["checkpoint"]).evaluate(6, seed=3)
        assert (entry["seed"], entry["returns"]) == (3, expected.returns)
    head, *rows = (line.split() for line in out.splitlines())
    assert head == ["policy", "step", "return", "length"]
    for entry, step, row in zip(entries, ("5,120", "2,560", "-"), rows, strict=True):
        spread = f"{entry['mean']:,.1f} +/- {entry['std']:,.1f}"
        length = f"{np.mean(entry['lengths']):,.0f}"
        assert row == [entry["checkpoint"], step, *spread.split(), length]


def test_several_policies_that_cannot_be_compared_are_refused(
    cartpole_run: Path, tmp_path: Path, call: Call
) -> None:
    run = str(cartpole_run)
    cases = {
        ("--video=out.mp4",): "--video is for one policy, and 2 are given",
        ("--record=out.npz",): "--record is for one policy, and 2 are given",
        ("--render=human",): "--render is for one policy, and 2 are given",
        (str(tmp_path / "none"),): f"{tmp_path / 'none'}: there is no such run or checkpoint",
    }
    for more, said in cases.items():
        code, out, err = call("evaluate", run, run, *more)
        assert (code, out) == (2, "")
        assert err.startswith(f"error: {said}")
        assert err.count("\n") == 1
    (tmp_path / "checkpoints").mkdir()
    other = tmp_path / "checkpoints" / "other.safetensors"
    state = load(cartpole_run / "checkpoints" / "last.safetensors")
    changed = {"env_kwargs": {"sutton_barto_reward": True}}
    save(other, {**state, "config": {**state["config"], **changed}})
    code, out, err = call("evaluate", run, str(other), "--episodes=1")
    assert (code, out) == (2, "")
    assert "plays CartPole-v1, " in err
    assert 'CartPole-v1 with {"sutton_barto_reward": true}: evaluate them one by one' in err
    output = f"--output={tmp_path / 'e.json'}"
    code, out, err = call("evaluate", run, str(other), "--episodes=1", "--env_kwargs={}", output)
    assert (code, err) == (0, "")
    assert len({line.split()[2] for line in out.splitlines()[1:]}) == 1  # the same episode


def test_no_episodes_need_no_process_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plays = "ppo.policy.policy.in_its_form"
    monkeypatch.setattr(plays, lambda *_, **options: pytest.fail("plays nothing"))
    summary = train(Config(**TINY, run_dir=str(tmp_path)))
    assert (TINY["eval_episodes"], summary.evaluation.episodes) == (0, 0)


def test_a_success_rate_is_shown_where_there_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    about = {"episodes": 2, "mean": 1.0, "std": 0.0, "returns": [1.0, 1.0], "lengths": [3, 4]}
    files = [Path("one"), Path("other")]
    metrics = ({"success_rate": 0.5}, {})
    results = [Evaluation(**about, unfinished=len(env), env=env) for env in metrics]
    print_table(dict(zip(files, results, strict=True)), dict.fromkeys(files, 1000))
    head, one, other, note = capsys.readouterr().out.splitlines()
    assert head.endswith("success rate")
    assert (one.split()[-1], other.split()[-1]) == ("50.0%", "-")
    assert note.startswith(f"{files[0]}: 1 episodes were cut off")


def test_results_that_cannot_be_written_are_shown(
    cartpole_run: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(evaluate, "write_json", fail)  # on a disk that is full by then
    output = tmp_path / "e.json"
    code, out, error = call("evaluate", str(cartpole_run), "--episodes=1", f"--output={output}")
    assert code == 1
    assert "return" in out
    said = f"--output={output} cannot be written (No space left on device): give another file"
    assert error == f"error: {said}\n"
