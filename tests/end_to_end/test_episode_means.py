"""Means of episodes are not those of the short ones, which end first where all begin together."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from ppo import train
from tests.running import TINY, events, metrics

SHORT, LONG = 2, 12  # steps


class Split(gymnasium.Env):
    """By their seeds, half of the episodes are short and succeed; the others are long and fail.

    never: the number of an environment whose episodes do not end."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, index: int, never: int = -1) -> None:
        self.is_endless = index == never

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        self.is_short = self.np_random.random() < 0.5
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> Any:
        self.steps += 1
        ended = not self.is_endless and self.steps == (SHORT if self.is_short else LONG)
        return np.zeros(1, np.float32), -1.0, ended, False, {"is_success": self.is_short}


def run(folder: Path, **flags: Any) -> list[dict[str, str]]:
    """Train a little; return the rows of metrics.csv."""
    size = {"num_envs": 200, "num_steps": 4, "total_steps": 10 * 800}
    flags = {"preset": "none", **TINY, **size, "run_dir": str(folder), **flags}
    del flags["env_name"]
    train(Split, **flags)
    return metrics(folder)


def test_means_have_no_value_until_each_environment_has_ended_an_episode(tmp_path: Path) -> None:
    """Neither do they swing to the long ones, of which a hundred end in the same step."""
    rows = run(tmp_path, stop_when="env/success_rate>0.75", best_by="episode_return_mean")
    assert [row["episode_return_mean"] for row in rows[:2]] == ["", ""]
    assert [row["env/success_rate"] for row in rows[:2]] == ["", ""]
    assert int(rows[0]["episodes"]) > 100
    rates = [float(row["env/success_rate"]) for row in rows[2:]]
    assert rates == pytest.approx([0.5] * 8, abs=0.12)
    returns = [float(row["episode_return_mean"]) for row in rows[2:]]
    assert returns == pytest.approx([-(SHORT + LONG) / 2] * 8, abs=1.5)
    best = int((tmp_path / "checkpoints" / "best.safetensors").resolve().stem)
    assert best == 800 * (3 + int(np.argmax(returns)))


def test_a_resumed_run_waits_for_the_same_environments(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", num_iterations=4)
    run(tmp_path / "cut", num_iterations=1)
    again = {"num_iterations": 4, "run_dir": None, "resume": str(tmp_path / "cut")}
    assert run(tmp_path / "cut", **again) == whole


def test_an_environment_that_never_ends_an_episode_is_named(tmp_path: Path) -> None:
    few = {"num_envs": 2, "num_steps": 1024, "total_steps": 8 * 2048}
    rows = run(tmp_path, env_kwargs={"never": 1}, **few)
    assert {row["episode_return_mean"] for row in rows} == {""}
    (event,) = events(tmp_path, "environment")
    assert "environments [1] are still in their first episode" in event["message"]
