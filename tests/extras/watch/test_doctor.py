"""The doctor names what is wrong, once, and is silent where nothing is."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.spaces import Box

from ppo import Config, train
from ppo.algorithm.rollout import Batch, Rollout
from ppo.extras.presets.presets import load_preset
from ppo.extras.watch.doctor import Doctor
from tests.running import metrics, run_main

Seen = tuple[Rollout, Batch]
RETURNS = {"returns": torch.arange(4.0)}


def seen(endings: Sequence[bool] = (), largest: float = 1.0) -> Seen:
    """An iteration whose episodes were ended so, by a time limit or not, with observations up to
    so large."""
    rollout = Rollout(
        observations=np.linspace(0, largest, 10).reshape(5, 2, 1),
        truncations=np.array(endings, bool).reshape(-1, 1),
    )
    episodes = [SimpleNamespace(step=step, environment=0) for step in range(len(endings))]
    rollout.info = SimpleNamespace(episodes=episodes)
    return rollout, RETURNS


WELL = seen()


def look(
    doctor: Doctor,
    rollout: Rollout,
    batch: Batch,
    metrics: dict[str, Any],
    *,
    progress: float,
    config: Any = None,
    value_scale: float = 1.0,
) -> list[str]:
    """Return what a doctor says of an iteration, when so much of the run is done."""
    said: list[str] = []
    config = config or Config()
    doctor.on_iteration(
        SimpleNamespace(
            rollout=rollout,
            batch=batch,
            metrics=metrics,
            iteration=progress * config.iterations,
            config=config,
            parts=SimpleNamespace(
                spaces=SimpleNamespace(observations=Box(-9, 9, (1,))),
                learner=SimpleNamespace(value_scale=value_scale),
            ),
            folder=SimpleNamespace(event=lambda kind, text: said.append(text)),
        )
    )
    return said


class Ill(CartPoleEnv):
    """CartPole with other rewards, without observations, or that only a time limit ends."""

    def __init__(
        self, scale: float = 1.0, blind: bool = False, idle: bool = False, nan: bool = False
    ) -> None:
        super().__init__()
        self.scale, self.blind, self.idle, self.nan = scale, blind, idle, nan

    def reset(self, **options: Any) -> tuple[np.ndarray, dict]:
        self.age = 0
        observation, info = super().reset(**options)
        return observation * (not self.blind), info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.age += 1
        observation, reward, terminated, _, info = super().step(action)
        if self.idle:
            self.state, terminated = self.np_random.uniform(-0.05, 0.05, 4), False
            self.steps_beyond_terminated = None
        if self.nan and self.age == 5:
            observation = observation * np.nan
        return (
            observation * (not self.blind),
            reward * self.scale,
            terminated,
            self.age >= 40 + 460 * (not self.idle),
            info,
        )


ILL: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "learning rate x 100": ({}, {"learning_rate": 0.1}, "policy updates are too large (KL "),
    "rewards x 10,000": ({"scale": 1e4}, {}, "returns have a standard deviation of "),
    "constant observations": ({"blind": True}, {}, "observations are constant"),
    "time limit": (
        {"idle": True},
        {},
        "the time limit truncates over 95 % of episodes",
    ),
    "entropy coefficient": ({}, {"entropy_coef": 1.0}, "the entropy stays near"),
}


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name", ILL)
def test_each_problem_is_reported_once(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    env_kwargs, values, said = ILL[name]
    preset = load_preset("CartPole-v1", "CartPole-v1", str) | {"normalize_rewards": False}
    run = {
        "env_name": "tests.extras.watch.test_doctor:Ill",
        "env_kwargs": env_kwargs,
        "num_workers": 0,
        "num_envs": 8,
        "num_steps": 64,
        "total_steps": 30_000,
    }
    quiet = {"eval_episodes": 0, "logger": "none", "report": False, "run_dir": str(tmp_path)}
    train(Config(**{**preset, **run, **quiet, **values, "total_steps": 30_000}))
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    messages = [line["message"] for line in lines if line["kind"] == "doctor"]
    assert [message for message in messages if message.startswith(said)] == messages[:1]
    assert len(messages) <= 2
    assert f"warning: {messages[0]}\n" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "CartPole-v1",
        "Acrobot-v1",
        "LunarLander-v3",
        "MountainCarContinuous-v0",
        "Pendulum-v1",
    ],
)
def test_nothing_is_reported_of_a_whole_run_by_its_preset(name: str, tmp_path: Path) -> None:
    done = run_main(
        f"--env_name={name}", "--eval_episodes=0", f"--run_dir={tmp_path}", timeout=1200
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(metrics(tmp_path)) >= 10
    assert '"doctor"' not in (tmp_path / "events.jsonl").read_text()


METRICS: dict[str, Any] = {
    "approx_kl": 0.01,
    "entropy": 0.6,
    "explained_variance": 0.5,
    "episodes": 100,
    "episode_return_mean": 1.0,
}


def reports(
    count: int,
    iteration: Seen = WELL,
    config: Any = None,
    num_actions: int = 0,
    **metrics: Any,
) -> list[str]:
    """Return what is reported of a run whose iterations but the first are so."""
    doctor = Doctor(num_actions)
    said = look(doctor, *iteration, METRICS, progress=0.01, config=config)
    return [
        *said,
        *(
            text
            for i in range(1, count)
            for text in look(
                doctor, *iteration, {**METRICS, **metrics}, progress=i / count, config=config
            )
        ),
    ]


@pytest.mark.parametrize(
    ("said", "metrics"),
    [
        ("policy updates are too large (KL 0.6", {"approx_kl": 0.6}),
        ("policy updates are too large (KL nan", {"approx_kl": float("nan")}),
        ("explained variance was < 0 for 30 iterations", {"explained_variance": -0.1}),
        ("the entropy has collapsed", {"entropy": 0.01}),
        ("over 90 % of value updates are clipped", {"value_clip_fraction": 0.95}),
    ],
)
def test_each_symptom_has_its_sentence(said: str, metrics: dict[str, float]) -> None:
    (text,) = reports(100, **metrics)
    assert text.startswith(said)


def test_what_was_learned_before_a_resume_counts() -> None:
    rows = [
        {"episode_return_mean": "1", "entropy": "0.6"},
        {"episode_return_mean": "", "entropy": "0.5"},
    ]
    doctor = Doctor(0)
    doctor.on_start(SimpleNamespace(rows=[*rows, {"episode_return_mean": "2", "entropy": "0.2"}]))
    assert [look(doctor, *WELL, {**METRICS, "entropy": 0.01}, progress=0.9) for _ in range(40)] == [
        []
    ] * 40
    doctor = Doctor(0)
    doctor.on_start(SimpleNamespace(rows=rows))
    assert len(look(doctor, *WELL, {**METRICS, "entropy": 0.01}, progress=0.9)) == 1


def test_a_run_whose_mean_return_has_no_value_is_not_said_to_have_learned_nothing() -> None:
    assert reports(100, explained_variance=-0.1, episode_return_mean=None) == []


def test_the_time_limit_is_reported_after_many_iterations() -> None:
    doctor = Doctor(0)
    limited = seen(endings=[True] * 50)
    free = seen(endings=[False] * 50)
    each = [*[limited] * 29, free, *[limited] * 31]  # free is remembered for an iteration more
    said = [
        look(doctor, *iteration, METRICS, progress=0.1 if number < 50 else 0.9)
        for number, iteration in enumerate(each)
    ]
    assert said[:-1] == [[]] * 60
    assert said[-1][0].startswith("the time limit truncates over 95 %")


def test_large_observations_that_are_not_normalised_are_named() -> None:
    large = seen(largest=-5e4)
    (text,) = reports(2, large, Config(normalize_observations=False))
    assert text.startswith("observations are as large as 5e+04")
    assert reports(2, large, Config(normalize_observations=True)) == []
    assert reports(2, WELL, Config(normalize_observations=False)) == []


def test_clipped_actions_are_named_where_no_extra_begins_runs_from_others() -> None:
    values = {**vars(Config()), "iterations": 100}
    del values["init_from"]
    rollout, batch = seen()
    rollout.actions = np.full((200, 1, 1), 5.0)
    rollout.present = np.zeros((0, 0), bool)
    doctor = Doctor(1, np.array([[-1.0], [1.0]]))
    config = SimpleNamespace(**values)
    (text,) = look(doctor, rollout, batch, METRICS, progress=0.01, config=config)
    assert text.startswith("100% of actions are clipped")


def test_large_returns_are_no_problem_in_their_own_unit() -> None:
    rollout, batch = WELL
    large = rollout, {"returns": 1e4 * batch["returns"]}
    (said,) = look(Doctor(0), *large, METRICS, progress=0.01)
    assert said.startswith("returns have a standard deviation of ")
    assert not look(Doctor(0), *large, METRICS, progress=0.01, value_scale=1e4)
