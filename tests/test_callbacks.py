"""Callbacks: when they are called, and what they may do."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import MultiDiscrete
from gymnasium.wrappers import OrderEnforcing

import ppo
from ppo import Config, Learner
from ppo.callbacks import Callback
from ppo.checkpoint import BEST, load
from ppo.errors import CheckpointError, ConfigError
from ppo.policy import Evaluation
from tests.running import SMALL, Own, iterate, rows, running, train
from tests.test_imitation import Signs
from tests.worlds import Constant

NOTED = ("on_model", "on_start", "on_episode", "on_evaluation", "on_checkpoint", "on_end")


class Recorder(Callback):
    """Note the calls; ends the run in the third iteration."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def on_batch(self, run: Any, batch: Any) -> None:
        self.calls.append("on_batch")
        batch["advantages"].zero_()

    def on_iteration(self, run: Any) -> None:
        self.calls.append(("on_iteration", run.iteration, run.metrics["policy_loss"] == 0))
        if run.iteration == 3:
            run.stop("enough")
            run.stop("too late")


for name in NOTED:
    setattr(Recorder, name, lambda self, *_, name=name: self.calls.append(name))


def test_the_order_of_calls_and_a_stop_that_ends_as_after_the_last_iteration(tmp_path):
    recorder = Recorder()
    flags = {"eval_episodes": 2, "eval_every": 2, "normalize_advantages": "none"}
    summary = train(Constant, tmp_path, 9, [recorder], checkpoint_every=2, **flags)
    assert summary.reason == "enough"
    first, second, third = (("on_iteration", i, True) for i in (1, 2, 3))
    assert recorder.calls[0] == "on_model"
    assert [x for x in recorder.calls if x != "on_model"] == [
        "on_start",
        *["on_batch", *["on_episode"] * 4, first],
        *["on_batch", *["on_episode"] * 8, "on_evaluation", second, "on_checkpoint"],
        *["on_batch", *["on_episode"] * 4, third, "on_checkpoint"],
        *["on_evaluation", "on_end"],
    ]


class Counted(Learner):
    def loss(self, *arguments: Any) -> Any:
        loss, metrics = super().loss(*arguments)
        return loss, {**metrics, "iteration": loss.detach()}


def test_a_metric_of_the_trainers_own_is_refused(tmp_path):
    """A resumed run would read another iteration."""
    with running(Constant, tmp_path / "a") as run, pytest.raises(ValueError, match="iteration"):
        run.log("iteration", 1.0)
    with pytest.raises(ConfigError, match="metric named iteration"):
        train(Constant, tmp_path / "b", 1, learner=Counted)


@pytest.mark.parametrize("value", [{1}, b"1", np.array(["1"])], ids=str)
def test_a_state_that_cannot_be_saved_is_refused_before_the_first_iteration(value, tmp_path):
    recorder = Recorder()
    recorder.state_dict = lambda: {"x": value}  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match="state of a callback"):
        train(Constant, tmp_path / "run", 2, [recorder])
    assert recorder.calls[-1] == "on_start"
    assert not (tmp_path / "run").exists()


def test_only_live_flags_change_during_a_run(tmp_path):
    with running(Constant, tmp_path) as run:
        for flags in ({"num_envs": 3}, {"gamma": 0.5}, {"learning_rate": -1}, {"nothing": 1}):
            with pytest.raises(ConfigError):
                run.change(**flags)
        run.change(lr="0.5")
        assert run.config.learning_rate == 0.5


def test_checkpoints_and_evaluations_are_regular_and_the_best_state_is_kept(tmp_path, monkeypatch):
    saved = []
    with running(Constant, tmp_path, eval_every=2, checkpoint_every=3) as run:
        results = iter([1.0, 3.0, 2.0])
        monkeypatch.setattr(run, "evaluate", lambda: Evaluation(next(results)))
        save = lambda is_best=False: saved.append((run.iteration, is_best))  # noqa: E731
        monkeypatch.setattr(run, "save", save)
        iterate(run, 6)
        assert saved == [(2, True), (3, False), (4, True), (6, False)]
        monkeypatch.setattr("ppo.run.MAX_SECONDS", 0)
        iterate(run)
        assert saved[-1] == (7, False)
        monkeypatch.setattr(run, "evaluate", lambda: Evaluation(3.5))
        run.finish()
    assert load(tmp_path / "checkpoints" / BEST)["iteration"] == 7
    found = [row["evaluation_return_mean"] for row in rows(tmp_path)]
    assert found == ["", "1", "", "3", "", "2", ""]


class Told(Callback):
    def __init__(self, number: int = 1) -> None:
        self.number = number

    def on_start(self, run: Any) -> None:
        run.note(f"told {self.number}")


class Fitted(Learner):
    def __init__(self, *about: Any, number: int = 1) -> None:
        super().__init__(*about)


class Sized(Own):
    def __init__(self, *about: Any, number: int = 8) -> None:
        super().__init__(*about)
        self.extra = torch.nn.Linear(number, 1)


NAME = "tests.test_callbacks:{0.__name__}".format


@pytest.mark.parametrize(
    ("flag", "thing"),
    [
        *((flag, thing) for flag in ("callback", "callbacks") for thing in (Told, NAME(Told))),
        ("callbacks", [Told(3), Told, f"{NAME(Told)}(number=3)"]),
        ("learner", Fitted),
        ("learner", partial(Fitted, number=3)),
        ("learner", f"{NAME(Fitted)}(number=3)"),
        ("model", Sized),
        ("model", partial(Sized, number=3)),
        ("model", f"{NAME(Sized)}(number=3)"),
        ("model", Sized(Signs.observation_space, Signs.action_space, Config())),
        ("wrapper", OrderEnforcing),
        ("wrapper", [partial(OrderEnforcing)]),
        ("learning_rate", abs),
    ],
)
def test_code_comes_as_a_class_an_object_or_a_name_with_arguments(flag, thing, tmp_path, capfd):
    given = {**SMALL, "total_steps": 64, "run_dir": str(tmp_path / "x"), flag: thing}
    ppo.train(Signs, **given)
    assert ("told" in capfd.readouterr().err) == (flag in ("callback", "callbacks"))
    if flag == "model":
        again = {} if isinstance(thing, str) else {"model": thing}
        assert ppo.load_policy(tmp_path / "x", Signs, **again).evaluate(1).returns
    if flag == "learning_rate":
        with pytest.raises(CheckpointError, match="pass again --learning_rate=builtins:abs"):
            ppo.train(resume=str(tmp_path / "x"))


@pytest.mark.parametrize("door", ["callbacks", "callback", "learner", "model", "wrapper", "logger"])
@pytest.mark.parametrize("thing", [3, dict, object()])
def test_other_things_are_refused_by_the_name_of_the_flag(door, thing):
    with pytest.raises(ConfigError, match=f"--{door.removesuffix('s')}"):
        ppo.train(Signs, **{**SMALL, "total_steps": 64, door: thing})


def test_a_network_of_other_actions_is_refused():
    with pytest.raises(ConfigError, match=r"\(2, 2\)\], not .*\(2, 1\)\]"):
        ppo.train(
            Signs, model=Own(Signs.observation_space, MultiDiscrete([2, 2]), Config()), **SMALL
        )
