"""Runs: trained from Python and by a command, killed and resumed."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ppo
from ppo import losses
from ppo.callbacks import Callback
from ppo.checkpoint import load, save
from ppo.cli import main
from ppo.errors import CheckpointError, ConfigError
from ppo.learner import Learner
from tests.running import (
    SMALL,
    assert_same_state,
    iterate,
    python,
    rows,
    running,
    tensors,
    train,
)
from tests.worlds import Constant, Counting, Unseeded

LINE = [f"--{name}={value}" for name, value in SMALL.items()]
LINE = ["tests.worlds:Counting", *LINE, "--total_steps=192", "--resume=auto"]


class Copy(Callback):
    """Copy the run's folder once a checkpoint is saved: what a kill would leave."""

    def __init__(self, iteration: int, place: Path) -> None:
        self.iteration, self.place = iteration, place

    def on_checkpoint(self, run: Any) -> None:
        if run.iteration == self.iteration:
            shutil.copytree(run.folder.path, self.place)


class Change(Callback):
    """Change the learning rate, and the clip, after the second iteration."""

    def on_iteration(self, run: Any) -> None:
        if run.iteration == 2:
            run.change(learning_rate=5e-3, clip_coef="linear:0.3")


class Noisy(Learner):
    """Draw random numbers in the loss, and weigh it by how often it was computed."""

    count = 0

    def loss(self, minibatch: Any, distribution: Any, values: Any) -> Any:
        self.count += 1
        loss, metrics = super().loss(minibatch, distribution, values)
        return loss * torch.rand(()) * self.count, metrics

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.count = state["count"]


@pytest.mark.parametrize(
    ("env", "callbacks", "flags"),
    [
        pytest.param(Counting, [Change()], {}, id="change"),
        pytest.param(Counting, [], {"learner": Noisy}, id="random loss"),
        pytest.param("CartPole-v1", [], {"learning_rate": "adaptive:1e-3"}, id="adaptive"),
        pytest.param(Counting, [], {"model": "lstm", "target_kl": 0.1}, id="lstm"),
    ],
)
def test_a_run_that_was_killed_goes_on_as_if_it_had_not_been(env, callbacks, flags, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    flags = {"checkpoint_every": 1, "normalize_rewards": True, **flags}
    flags.setdefault("normalize_observations", True)
    train(env, whole, 5, [*callbacks, Copy(3, parts)], **flags)
    assert len(rows(parts)) == 3
    train(env, parts, 5, callbacks, **flags)
    assert_same_state(parts, whole)
    names = ("learning_rate", "clip_coef", "approx_kl", "episode_return_mean")
    mine, its = ([[row[name] for name in names] for row in rows(x)] for x in (parts, whole))
    assert mine == its
    assert len(mine) == 5
    if callbacks:
        rates = [float(row[0]) for row in mine]
        assert rates == [2.5e-4, 2.5e-4, 5e-3, 5e-3, 5e-3]
        clips = [float(row[1]) for row in mine]
        assert clips == pytest.approx([0.1, 0.1, 0.3 * 3 / 5, 0.3 * 2 / 5, 0.3 / 5])


@pytest.mark.parametrize(("again", "rate"), [("adaptive:1e-3", None), ("adaptive:1e-4", 1e-4)])
def test_an_adaptive_learning_rate_goes_on_unless_another_one_is_given(again, rate, tmp_path):
    train(Counting, tmp_path, 2, learning_rate="adaptive:1e-3")
    before = float(tensors(tmp_path)["learning_rate"])
    assert before > 1e-3
    train(Counting, tmp_path, 3, learning_rate=again)
    assert float(rows(tmp_path)[-1]["learning_rate"]) == pytest.approx(rate or before)
    change = "128 on, learning_rate=adaptive:1e-4 (was adaptive:1e-3)"
    assert bool(rate) == any(change in x.read_text() for x in tmp_path.glob("notes.txt"))


def test_a_resumed_run_is_not_exact_where_the_environment_ignores_its_seed(tmp_path):
    flags = {"normalize_rewards": True, "num_steps": 15}
    train(Unseeded, tmp_path, 2, **flags)
    train(Unseeded, tmp_path, 3, **flags)
    assert "not exact" in (tmp_path / "notes.txt").read_text()
    state = tensors(tmp_path)
    assert state["episodes.count"] == 4 * (30 // 10 + 15 // 10)  # those that were open are left out


def assert_names(run: Path) -> None:
    """Other programs read these; what is "auto" is resolved again where a run goes on."""
    first = ["iteration", "step", "seconds", "steps_per_second", "episodes", "episode_return_mean"]
    assert [*rows(run)[0]][: len(first)] == first
    about, config = (json.loads((run / f"{x}.json").read_text()) for x in ("summary", "config"))
    assert about.keys() == {"folder", "checkpoint", "evaluation", "steps", "seconds", "reason"}
    assert about["evaluation"].keys() == {"mean", "std", "returns", "lengths", "env"}
    state = load(run / "checkpoints" / "last.safetensors")
    assert "model.policy_trunk.layers.0.weight" in state
    assert (config["precision"], state["config"]["precision"]) == ("float32", "auto")


@pytest.mark.parametrize(
    ("flags", "is_told"),
    [({"env": "CartPole-v1", "eval_episodes": 1}, True), ({"env": "CartPole-v1"}, False)]
    + [({"env": env, "eval_episodes": 1}, False) for env in (Constant, "Pendulum-v1")],
    ids=str,
)
def test_a_final_evaluation_below_the_threshold_says_so(flags, is_told, tmp_path, capsys):
    train(path=tmp_path, iterations=1, logger="console", **flags)
    said = " ".join(capsys.readouterr().out.split())
    assert ("is below 475" in said) == is_told
    assert (f"--resume={tmp_path} --total_steps=128" in said) == is_told


def test_a_complete_run_keeps_its_settings(tmp_path):
    train(Counting, tmp_path, 1)
    before = (tmp_path / "config.json").read_text()
    train(Counting, tmp_path, 1, learning_rate=7.0)
    assert (tmp_path / "config.json").read_text() == before


def test_train_from_python_leaves_the_process_as_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(3)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    flags = {**SMALL, "total_steps": 128, "eval_episodes": 2}
    summary = ppo.train(Counting, **flags)
    after = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert before[1] == after[1]
    assert summary.steps == 128
    assert summary.folder == str(tmp_path / "runs" / "Counting-1")
    assert summary.evaluation == ppo.load_policy(summary.checkpoint).evaluate(2)
    assert_names(Path(summary.folder))
    other = ppo.train(Counting, ppo.Config(**{**SMALL, "logger": ()}), total_steps=64)
    assert Path(other.folder).name == "Counting-2"
    with pytest.raises(ConfigError, match="--resume"):
        ppo.train(Counting, run_dir=summary.folder, **flags)


CODE = """
import gymnasium, ppo
from tests.running import SMALL, Own
from tests.test_imitation import Signs
class Env(Signs): pass
class Net(Own): pass
class Wrapper(gymnasium.Wrapper): pass
class Kept(ppo.Callback): state_dict = lambda self: {"kept": 1}
code = dict(model=Net, wrapper=[Wrapper], callbacks=[Kept()])
"""
FIRST = "ppo.train(Env, **code, name='x', total_steps=64, **SMALL)"


def test_a_script_resumes_with_its_own_classes_and_the_command_names_them_by_a_file(tmp_path):
    (tmp_path / "mine.py").write_text(CODE)
    for line in (FIRST, "ppo.train(resume='x', total_steps=128, num_workers=1)"):
        (tmp_path / "script.py").write_text(CODE + line)
        done = python("script.py", cwd=tmp_path)
        assert (done.returncode, "Kept is dropped" in done.stderr) == (0, line != FIRST)
    assert main(["CartPole-v1", f"--resume={tmp_path / 'runs' / 'x'}"]) == 3
    line = "--resume=x --total_steps=192 --env_name=mine.py:Env --model=mine.py:Net"
    done = python("-m", "ppo", *line.split(), "--wrapper=mine.py:Wrapper", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


class Threads(Callback):
    def on_batch(self, run: Any, batch: Any) -> None:
        self.seen = torch.get_num_threads()

    def on_iteration(self, run: Any) -> None:
        self.has_helper = bool(run.learner.thread._threads)


@pytest.mark.parametrize(("threads", "seen"), [("auto", 1), (1, 1), (3, 3)])
def test_the_learner_has_as_many_threads_as_are_given(threads, seen, tmp_path, monkeypatch):
    monkeypatch.setattr("ppo.numpy_learner.MIN_WORK", 0)
    before = torch.get_num_threads()
    train(Constant, tmp_path, 1, [told := Threads()], threads=threads)
    assert (told.seen, torch.get_num_threads()) == (seen, before)
    assert told.has_helper == (threads != 1)


def test_the_same_command_goes_on_and_after_the_end_exits_with_0(tmp_path, capsys, monkeypatch):
    line = [*LINE, f"--run_dir={tmp_path / 'run'}"]
    assert main(line) == 0
    before = (tmp_path / "run" / "metrics.csv").read_text()
    assert main(line) == 0
    assert (tmp_path / "run" / "metrics.csv").read_text() == before
    assert main([*line[:-3], line[-1], "--total_steps=256", "--resume=auto"]) == 0
    assert len(rows(tmp_path / "run")) == 4
    assert main([*line, "--seed=1"]) == CheckpointError.exit_code
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.set_num_threads", (told := []).append)
    assert main(["evaluate", "run", "run", "none", "--threads=3"]) == CheckpointError.exit_code
    assert told == [3, 3]
    assert re.fullmatch(r"run .*\n(run +last +256 +20 .*\n)\1", capsys.readouterr().out)
    assert main(["--sed=1"]) == ConfigError.exit_code


def test_killed_before_the_first_checkpoint_the_same_command_begins_anew(tmp_path):
    code = "import os\nfrom ppo import Callback\nclass Kill(Callback):\n"
    code += "    def on_iteration(self, run):\n        if not os.path.exists('killed'):\n"
    code += "            open('killed', 'w').close()\n            os.kill(os.getpid(), 9)\n"
    (tmp_path / "kills.py").write_text(code)
    line = ["-m", "ppo", *LINE, "--run_dir=run", "--callback=kills:Kill"]
    assert python(*line, cwd=tmp_path).returncode == -9
    (tmp_path / "run" / "checkpoints" / ".tmp-left").touch()
    done = python(*line, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["iteration"] for row in rows(tmp_path / "run")] == [*"123"]
    assert not [*(tmp_path / "run").rglob(".tmp*")]


class AdamW(Learner):
    def make_optimizer(self) -> Any:
        return torch.optim.AdamW([self.parameter], self.learning_rate)


@pytest.mark.parametrize("left_out", ["optimizer.", "optimizer.exp_avg_sq"])
@pytest.mark.parametrize("learner", ["auto", AdamW])
def test_a_checkpoint_without_its_optimizer_is_not_resumed(left_out, learner, tmp_path):
    train(Constant, tmp_path, 1, learner=learner)
    path = tmp_path / "checkpoints" / "last.safetensors"
    state = {name: x for name, x in load(path).items() if not name.startswith(left_out)}
    save(path, state)
    with pytest.raises(CheckpointError, match="optimizer"):
        train(Constant, tmp_path, 2, learner=learner)


class Wide(Constant):
    """Returns float64, which the table of its space does not hold."""

    def step(self, action: Any) -> Any:
        observation, *others = super().step(action)
        return np.float64(observation) / 3, *others


def test_an_episode_of_other_dtypes_is_repeated_by_a_resumed_run(tmp_path, capfd):
    train(Wide, tmp_path, 2)
    train(Wide, tmp_path, 3)
    assert "not exact" not in capfd.readouterr().err


def test_torch_learns_where_its_code_is_edited(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(losses, "MAX_LOG_RATIO", 0.01)
    with running(Constant, tmp_path) as run:
        assert type(run.learner) is Learner
        iterate(run)
    assert "using torch" in capfd.readouterr().err
