"""Ending a run early, where it is known when it must end."""

import json

import pytest

from ppo.cli import main
from ppo.errors import ConfigError
from ppo.extras.stopping import Stopping
from tests.running import train
from tests.worlds import Constant


@pytest.mark.parametrize(
    ("flags", "iterations"),
    [
        ({"stop_when": "seconds>0"}, 1),
        ({"stop_when": "iteration>=3"}, 3),
        ({"stop_when": "iteration>3"}, 4),
        ({"stop_when": "step <65"}, 1),
        ({"stop_when": "episode_return_mean>9.5"}, 16),
        ({"stop_when": "episode_return_mean>10"}, 20),
        ({"stop_when": "solved>=10"}, 2),
        ({"stop_when": "solved>=10.5"}, 20),
        ({"patience": 2}, 3),
        ({"patience": 1, "eval_every": 2, "eval_episodes": 1}, 4),
        ({"max_time": "0.0s"}, 1),
        ({"max_time": "1d"}, 20),
    ],
)
def test_a_run_ends_where_its_condition_first_holds(flags, iterations, tmp_path):
    summary = train(Constant, tmp_path, 20, **flags)
    assert summary.steps == 64 * iterations
    assert bool(summary.reason) == (iterations < 20)
    again = train(Constant, tmp_path, 20, **flags)
    assert (again.steps, again.reason) == (summary.steps, summary.reason)


@pytest.mark.parametrize(
    ("flags", "iterations"),
    [({"patience": 4, "eval_every": 9}, 18), ({"stop_when": "solved>=10"}, 6)],
)
def test_a_resumed_run_may_be_given_a_condition(flags, iterations, tmp_path):
    train(Constant, tmp_path, 5)
    flags = {"eval_episodes": 1, **flags}
    assert train(Constant, tmp_path, 20, **flags).steps == 64 * iterations


def test_flags_and_what_was_counted_are_kept_by_a_resumed_run(tmp_path):
    train(Constant, tmp_path, 2, patience=3)
    assert train(Constant, tmp_path, 20).steps == 64 * 4
    given = [Stopping(patience=5)]
    assert train(Constant, tmp_path, 20, given).steps == 64 * 6
    assert given[0].best == 10


@pytest.mark.parametrize(
    "flags",
    [
        {"stop_when": "return>>1"},
        {"stop_when": "solved<1"},
        {"stop_when": "solved"},
        {"stop_when": "iterations>1"},
        {"max_time": "90"},
    ],
)
def test_a_condition_that_cannot_hold_is_refused(flags, tmp_path):
    with pytest.raises(ConfigError, match=next(iter(flags))):
        train(Constant, tmp_path, 1, **flags)


@pytest.mark.slow
def test_cartpole_is_solved_by_default(tmp_path):
    assert main(["CartPole-v1", "--seed=1", "--stop_when=solved", f"--run_dir={tmp_path}"]) == 0
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["reason"] == "solved>=475"
    assert summary["evaluation"]["mean"] > 475
