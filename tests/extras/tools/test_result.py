"""Which evaluation is a run's result, as `ppo runs` and `ppo report` show it."""

import csv
import json
import re
import shutil
import sys
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from ppo import load_policy, train
from ppo.extras.tools.result import alike, differences
from tests.environments import Bandit
from tests.running import TINY, Call

NEWEST = 5120  # step of the newest checkpoint of the fixture's run, which is not evaluated


def shown(run: Path, call: Call) -> list[str]:
    """Return what `ppo runs` shows of a run: its result, number of episodes and steps."""
    code, out, err = call("runs", f"--folder={run.parent}")
    assert (code, err) == (0, "")
    (row,) = (line.split() for line in out.splitlines()[1:] if line.split()[0] == run.name)
    return row[3:6]


def headline(run: Path, call: Call) -> str:
    """Return what a run's report shows first of its evaluation."""
    assert call("report", str(run))[::2] == (0, "")
    page = unescape((run / "report.html").read_text())
    (card,) = re.findall("<dt>return in evaluation</dt><dd>(.*?)</dd>", page)
    return re.sub("</?small>", "", card)


def evaluate(call: Call, *arguments: Any) -> None:
    """Evaluate by the command line, without an error."""
    assert call("evaluate", *map(str, arguments))[0] == 0


def result(run: Path, *, episodes: int, step: int = NEWEST, seed: int = 0) -> list[str]:
    """Return what is to be shown of an evaluation of the newest checkpoint."""
    mean = load_policy(run).evaluate(episodes, seed=seed).mean
    assert mean is not None
    return [f"{mean:.1f}", str(episodes), str(step)]


@pytest.mark.slow
def test_the_result_is_the_evaluation_of_the_newest_checkpoint_with_the_most_episodes(
    cartpole_copy: Path, tmp_path: Path, call: Call
) -> None:
    run = cartpole_copy
    checkpoints = run / "checkpoints"
    assert shown(run, call) == ["-", "-", str(NEWEST)]
    evaluate(call, checkpoints / "000000002560.safetensors", "--episodes=9")
    assert shown(run, call) == ["-", "-", str(NEWEST)]
    evaluate(call, run, "--episodes=1")
    value, *_ = expected = result(run, episodes=1)
    assert shown(run, call) == expected
    assert headline(run, call) == f"{value} over 1 episode at step {NEWEST:,}"
    evaluate(call, checkpoints / "last.safetensors", "--episodes=6")
    expected = result(run, episodes=6)
    evaluate(call, run, "--episodes=5")
    evaluate(call, checkpoints / "000000003840.safetensors", "--episodes=7")
    assert shown(run, call) == expected
    found = headline(run, call)
    assert found.startswith(f"{expected[0]} [")
    assert found.endswith(f"] over 6 episodes at step {NEWEST:,}")
    other = shutil.copytree(run, tmp_path / "other", symlinks=True)
    evaluate(call, other, "--episodes=6", "--seed=3")  # of as many, the newest counts
    assert shown(other, call) == result(run, episodes=6, seed=3)
    page = tmp_path / "all.html"
    assert call("report", str(run), str(other), f"--output={page}")[0] == 0
    assert page.read_text().count(f"] over 6 episodes at step {NEWEST:,}</td>") == 2


@pytest.mark.parametrize(
    "flags",
    [
        ["--stochastic"],
        ['--env_kwargs={"sutton_barto_reward": true}'],
        ["--wrapper=gymnasium.wrappers:TimeLimit(max_episode_steps=5)"],
        ["--env_name=CartPole-v0"],
        ["--max_steps=5"],
    ],
)
def test_an_evaluation_of_another_kind_is_not_the_result(
    flags: list[str], cartpole_copy: Path, call: Call
) -> None:
    evaluate(call, cartpole_copy, "--episodes=2")
    evaluate(call, cartpole_copy, "--episodes=3", *flags)
    assert shown(cartpole_copy, call) == result(cartpole_copy, episodes=2)


def test_an_evaluation_is_that_of_its_step_whatever_its_file_is_called(
    cartpole_copy: Path, tmp_path: Path, call: Call
) -> None:
    run = cartpole_copy
    checkpoints = run / "checkpoints"
    old, new = (checkpoints / f"{step:012d}.safetensors" for step in (2560, NEWEST))
    best = checkpoints / "best.safetensors"
    best.symlink_to(old.name)
    policy = run / "policy.safetensors"
    load_policy(old).save(policy)
    other = shutil.copytree(run, tmp_path / "other", symlinks=True)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "run_id": "other"}))
    evaluate(call, best, "--episodes=4")
    evaluate(call, policy, "--episodes=5")
    evaluate(call, other, "--episodes=6", f"--output={run / 'evaluation.json'}")
    assert shown(run, call) == ["-", "-", str(NEWEST)]
    best.unlink()
    best.symlink_to(new.name)
    evaluate(call, best, "--episodes=2")
    assert shown(run, call) == result(run, episodes=2)
    (run / "milestones").mkdir()
    milestone = shutil.copy(new, run / "milestones")
    evaluate(call, milestone, "--episodes=3")
    assert shown(run, call) == result(run, episodes=3)
    moved = run.rename(tmp_path / "moved")
    assert shown(moved, call) == result(moved, episodes=3)
    shutil.rmtree(moved / "checkpoints")
    assert shown(moved, call)[1:] == ["3", str(NEWEST)]


def test_a_run_that_has_been_trained_further_is_to_be_evaluated_anew(
    cartpole_copy: Path, call: Call
) -> None:
    run = cartpole_copy
    evaluate(call, run, "--episodes=9")

    def resume(step: int, episodes: int) -> None:
        flags = (f"--total_steps={step}", f"--eval_episodes={episodes}", "--report=False")
        assert call(f"--resume={run}", "--num_workers=0", "--logger=none", *flags)[0] == 0

    resume(5376, 0)
    assert shown(run, call) == ["-", "-", "5376"]
    resume(5632, 2)
    assert shown(run, call) == result(run, episodes=2, step=5632)
    evaluate(call, run, "--episodes=1")
    assert shown(run, call) == result(run, episodes=2, step=5632)
    evaluate(call, run, "--episodes=3")
    assert shown(run, call) == result(run, episodes=3, step=5632)
    (run / "checkpoints" / "000000005632.safetensors").unlink()  # as before it is saved
    assert shown(run, call) == ["-", "-", "5632"]
    evaluate(call, run, "--episodes=1")
    row = call("runs", f"--folder={run.parent}")[1]
    assert re.search(r" 1 +5376 of 5632 ", row)


def test_a_run_with_an_environment_for_evaluations_is_evaluated_in_that(
    tmp_path: Path, call: Call
) -> None:
    run = tmp_path / "run"
    flags = {**TINY, "eval_env": "CartPole-v0", "eval_episodes": 2, "run_dir": run}
    assert call(*(f"--{name}={value}" for name, value in flags.items()))[0] == 0
    own = shown(run, call)
    assert own[1] == "2"
    evaluate(call, run, "--episodes=3")
    assert shown(run, call) == own
    evaluate(call, run, "--episodes=4", "--env_name=CartPole-v0")
    assert shown(run, call)[1] == "4"


def test_files_of_earlier_versions_and_odd_ones_are_read(cartpole_copy: Path, call: Call) -> None:
    run = cartpole_copy
    evaluate(call, run, "--episodes=2")
    evaluate(call, run / "checkpoints" / "last.safetensors", "--episodes=3")
    path = run / "evaluation.json"
    new = ("step", "run_id", "wrapper", "max_steps")
    old = [
        {name: value for name, value in made.items() if name not in new}
        for made in json.loads(path.read_text())
    ]
    path.write_text(json.dumps(old))
    # Where the link leads to now is not where it led to.
    assert shown(run, call) == result(run, episodes=2)
    last = {"returns": [1, 2, 3, 4], "checkpoint": f"x/{NEWEST:012d}.safetensors", "env": None}
    odd: list[dict[str, Any]] = [
        {"returns": None, "mean": 1e9},
        {"returns": [], "step": NEWEST},
        {"returns": [1] * 9, "checkpoint": "\0/\x1b", "seed": 10**200},
        {"returns": [1] * 9, "checkpoint": "²" * 12 + ".safetensors"},
        {"returns": [1] * 9, "step": NEWEST, "env_name": ["x"], "env_kwargs": [[]]},
        {"returns": [1] * 9, "step": NEWEST, "unfinished": 9, "max_steps": -1},
        {**last, "unfinished": 2},
    ]
    path.write_text(json.dumps(odd))
    assert shown(run, call) == ["2.50", "4", str(NEWEST)]
    assert ", 2 cut off over 4 episodes at step" in headline(run, call)


def write_walker(run: Path, score: float = -1281.0, seed: int = 0) -> None:
    """Write the files of a run of BipedalWalker, whose newest checkpoint is evaluated."""
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / "000002998272.safetensors").touch()
    (run / "config.json").write_text(json.dumps({"env_name": "BipedalWalker-v3", "seed": seed}))
    head = "iteration,step,seconds,episode_return_mean"
    (run / "metrics.csv").write_text(f"{head}\n1,2998272,3601,-1283.81\n")
    evaluation = {"returns": [score] * 100}
    summary = {"steps": 2998272, "seconds": 1, "evaluation": evaluation}
    (run / "summary.json").write_text(json.dumps(summary))


def test_the_table_of_runs_has_whole_names_and_fits_in_a_terminal(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"BipedalWalker-v3-s{i}-20261127-151649-123456" for i in range(2)]
    for i, name in enumerate(names):
        write_walker(tmp_path / name, seed=i)
    _, *rows = call("runs", f"--folder={tmp_path}")[1].splitlines()
    assert [row.split()[0] for row in rows] == names  # as a program reads them
    assert [row.split()[3:6] for row in rows] == 2 * [["-1281.0", "100", "2998272"]]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for width, there, gone in ((80, "state", "environment"), (62, "run", "state")):
        monkeypatch.setenv("COLUMNS", str(width))
        head, *rows = call("runs", f"--folder={tmp_path}")[1].splitlines()
        assert max(map(len, rows)) <= width
        assert (there in head, gone in head) == (True, False)
        for name, row in zip(names, rows, strict=True):
            assert {name, "-1281.0", "2998272"} <= {*row.split()}
    monkeypatch.setenv("COLUMNS", "20")
    assert {*names} < {*call("runs", f"--folder={tmp_path}")[1].split()}  # they are never cut


def test_seeds_are_a_row_before_their_own(tmp_path: Path, call: Call) -> None:
    for seed, score in enumerate([1.0, 2.0, 3.0, 100.0]):
        write_walker(tmp_path / "mein Lauf" / f"s{seed}", score, seed)
    write_walker(tmp_path / "other", 7.0)
    _, *rows = call("runs", f"--folder={tmp_path}")[1].splitlines()
    assert [row.split("  ")[0] for row in rows[:2]] == ["mein Lauf", "mein Lauf/s0"]
    assert re.search(r"mein Lauf +4 seeds +BipedalWalker-v3 +2\.50 +400 +2998272 ", rows[0])
    assert len(rows) == 6


def test_runs_are_printed_as_csv(tmp_path: Path, call: Call) -> None:
    for seed in range(2):
        write_walker(tmp_path / "a, b" / f"s{seed}", -1.23456789, seed)
    (tmp_path / "a, b" / "s1" / "summary.json").unlink()
    code, out, err = call("runs", f"--folder={tmp_path}", "--csv")
    assert (code, err) == (0, "")
    first, second = csv.DictReader(out.splitlines())
    assert first["run"] == "a, b/s0"
    assert float(first["result"]) == pytest.approx(-1.23456789, rel=1e-12)
    assert (first["steps"], first["training"], first["seconds"]) == (
        "2998272",
        "-1283.81",
        "3601.0",
    )
    assert (second["state"], second["result"], second["episodes"]) == ("stopped", "", "")


@pytest.mark.slow
def test_a_film_is_no_evaluation(cartpole_copy: Path, tmp_path: Path, call: Call) -> None:
    evaluate(call, cartpole_copy, "--episodes=1", f"--video={tmp_path / 'film.mp4'}")
    assert not (cartpole_copy / "evaluation.json").exists()
    assert shown(cartpole_copy, call) == ["-", "-", str(NEWEST)]
    output = tmp_path / "film.json"
    film = f"--video={tmp_path / 'other.mp4'}"
    evaluate(call, cartpole_copy, "--episodes=1", film, f"--output={output}")
    assert len(json.loads(output.read_text())) == 1


def test_a_class_may_be_evaluated_by_its_import_path(tmp_path: Path, call: Call) -> None:
    run = tmp_path / "run"
    flags: dict[str, Any] = {name: value for name, value in TINY.items() if name != "env_name"}
    train(Bandit, **flags, run_dir=str(run))
    evaluate(call, run, "--env_name=tests.environments:Bandit", "--episodes=3")
    assert shown(run, call)[1] == "3"


def test_an_evaluation_on_other_ports_is_the_result() -> None:
    own = {"env_name": "arm.py:Arm", "env_kwargs": {"port": "{9000+index}", "speed": 1}}
    made = {**own, "env_kwargs": {"port": "{9500+2*index}", "speed": 1}}
    assert differences(made, own) == []
    made["env_kwargs"]["speed"] = 2
    assert differences(made, own) == ["other env_kwargs"]
    tasks = [{"port": "tcp:{9000+index}"}, {"port": "{index}"}]
    assert alike(tasks) == [{"port": "tcp:{index}"}, {"port": "{index}"}]
