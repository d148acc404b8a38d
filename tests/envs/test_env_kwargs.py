"""Keyword arguments and wrappers that flags give to an environment."""

import errno
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import NormalizeReward

from ppo.config.config import Config
from ppo.config.flags import as_arguments
from ppo.envs.env_kwargs import fill_in, wrap
from ppo.envs.episodes import layers
from ppo.envs.errors import EnvironmentUnavailable, WorkerError
from ppo.errors import CheckpointError
from ppo.policy.load import load_policy
from ppo.trainer import train
from tests.environments import Target
from tests.running import TINY, Call, make_env, spaces_of

OWN = "tests.envs.test_env_kwargs:Growing"
RESCALED = "gymnasium.wrappers:RescaleAction(min_action=-1, max_action=1)"


class Growing(gymnasium.Wrapper):
    """Show one number more after the third reset."""

    resets = 0

    def reset(self, **options: Any) -> Any:
        self.resets += 1
        observation, info = self.env.reset(**options)
        if self.resets == 3:
            self.observation_space = spaces.Box(-9, 9, (5,))
            observation = np.zeros(5, np.float32)
        return observation, info


class Sized(gymnasium.Env):
    """Observe a number of zeros."""

    action_space = spaces.Discrete(2)

    def __init__(self, size: int, growth: int = 0, index: int = 0) -> None:
        self.observation_space = spaces.Box(0, 1, (size + growth * index,))

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        return np.zeros(self.observation_space.shape, np.float32), {}

    def step(self, action: int) -> Any:
        return np.zeros(self.observation_space.shape, np.float32), 1.0, False, False, {}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{index}", 7),
        ("{9000 + 10*index}", 9070),
        ("tcp://h:{9000+index}/{index}", "tcp://h:9007/7"),
        ("{size}", "{size}"),
        ({"a": ["{index}", 2.5, None]}, {"a": [7, 2.5, None]}),
    ],
)
def test_the_number_of_the_environment_is_filled_in(text: Any, filled: Any) -> None:
    assert fill_in(text, 7) == filled
    assert type(fill_in(text, 7)) is type(filled)


def test_an_expression_that_cannot_be_filled_in_is_refused() -> None:
    said = r"--env_kwargs has \{.+\}: give \{index\}, "
    for text in ("{index+1}", "tcp://h:{10 * env}", "{index:03d}"):
        with pytest.raises(EnvironmentUnavailable, match=said):
            fill_in({"port": [text]}, 7)


def test_wrappers_go_around_the_environment_in_order() -> None:
    texts = [
        "gymnasium.wrappers:TimeAwareObservation",
        "gymnasium.wrappers:ClipReward(-1, max_reward=0.5)",
        f"{Path(__file__)}:Growing",
    ]
    env = wrap(gymnasium.make("CartPole-v1"), texts)
    assert [type(layer).__name__ for layer in layers(env)][:3] == [
        "Growing",
        "ClipReward",
        "TimeAwareObservation",
    ]
    env.reset(seed=0)
    assert env.step(0)[1] == 0.5


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("gymnasium.wrappers:RescaleAct", "did you mean RescaleAction?"),
        ("gymnasium.wrappers:RescaleAction", "missing"),
        ("gymnasium.wrappers:RescaleAction(min_action=low)", "they are no literals"),
        ("gymnasium.wrappers:TimeAwareObservation(nothing=1)", "nothing"),
    ],
)
def test_a_wrapper_that_does_not_fit_is_named(text: str, reason: str) -> None:
    with pytest.raises(EnvironmentUnavailable) as caught:
        wrap(gymnasium.make("CartPole-v1"), [text])
    assert str(caught.value).startswith(f"--wrapper={text} ")
    assert reason in str(caught.value)


def test_a_wrapper_that_changes_spaces_ends_a_run_with_1_and_a_sentence(
    call: Call, tmp_path: Path
) -> None:
    flags = {**TINY, "max_episode_steps": 2, "run_dir": tmp_path / "run", "wrapper": OWN}
    code, _, errors = call(*(f"--{name}={value}" for name, value in flags.items()))
    assert code == 1
    assert "environment 0 of CartPole-v1: its observation" in errors


class Mirrored(gymnasium.ActionWrapper):
    """Act the other way round, in the same space."""

    def action(self, action: Any) -> Any:
        return -action


class Own(NormalizeReward):
    """Gymnasium's, derived from."""


def scaled() -> gymnasium.Env:
    return Own(gymnasium.make("CartPole-v1"))


def test_wrappers_that_change_what_a_policy_observes_or_does_are_named(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    here = "tests.envs.test_env_kwargs"
    texts = [RESCALED, "tests.envs.test_env_factories:Plain", f"{here}:Mirrored"]
    said = f"no part of the policy: --wrapper={RESCALED} --wrapper={here}:Mirrored; predict"
    run = tmp_path / "run"
    flags = {**TINY, "env_name": "Pendulum-v1", "total_steps": 16, "verbose": 1}
    flags |= {"wrapper": texts, "run_dir": run}
    assert said in call(*as_arguments(flags))[1]
    policy = load_policy(run)
    assert capsys.readouterr().err.startswith(f"note: {said} and exported files take")
    assert abs(policy.predict(np.zeros(3))) <= 1
    policy.save(tmp_path / "own.safetensors")
    assert load_policy(tmp_path / "own.safetensors").spaces.wrappers == (texts[0], texts[2])
    names = [f"--wrapper={text}" for text in texts]
    assert call("evaluate", str(run), "--episodes=1", *names)[::2] == (0, "")
    for plain in ([], texts[1:2], ["gymnasium.wrappers:TimeLimit(max_episode_steps=9)"]):
        assert spaces_of("Pendulum-v1", wrapper=plain).wrappers == ()


@pytest.mark.parametrize(
    ("env_name", "wrapper", "flag"),
    [
        ("Pendulum-v1", ["gymnasium.wrappers:NormalizeObservation"], "normalize_observations"),
        ("tests.envs.test_env_kwargs:scaled", [], "normalize_rewards"),
    ],
)
def test_statistics_that_no_checkpoint_has_are_named_with_the_flag_that_keeps_them(
    env_name: str, wrapper: list[str], flag: str
) -> None:
    (warning,) = spaces_of(env_name, wrapper=wrapper).warnings
    assert "has statistics that are in no checkpoint and no evaluation" in warning
    assert warning.endswith(f": leave it out, --{flag} does it here")


def test_tasks_must_be_observed_alike() -> None:
    tasks = [{"size": 2}, {"size": 2}, {"size": 3}]
    found = spaces_of("tests.envs.test_env_kwargs:Sized", env_kwargs=tasks[:2])
    assert found.observations.shape == (2,)
    with pytest.raises(
        EnvironmentUnavailable, match=r"other spaces .* in the list of --env_kwargs"
    ):
        spaces_of("tests.envs.test_env_kwargs:Sized", env_kwargs=tasks)


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_environment_unlike_the_first_look_is_named(tmp_path: Path, num_workers: int) -> None:
    values = {**TINY, "env_kwargs": {"size": 1, "growth": 3}, "run_dir": str(tmp_path / "run")}
    values["num_workers"] = num_workers
    with pytest.raises(EnvironmentUnavailable, match=r"environment 1 .* observes .* \(4,\)"):
        train("tests.envs.test_env_kwargs:Sized", Config(**values))


def test_limits_count_decisions_in_a_game_and_steps_elsewhere() -> None:
    for name in ("FreewayNoFrameskip-v4", "CartPole-v1"):
        skip = 4 if "Freeway" in name else 1
        env = make_env(name, max_episode_steps=5, frame_skip=skip, noop_max=0)
        env.reset(seed=0)
        assert [env.step(0)[3] for _ in range(5)] == [False] * 4 + [True]
    env = make_env("CartPole-v1", max_episode_steps=4, frame_skip=2)
    env.reset(seed=0)
    assert [env.step(n % 2)[3] for n in range(2)] == [False, True]


def test_wrappers_of_a_checkpoint_are_trusted_if_gymnasiums_or_repeated(tmp_path: Path) -> None:
    own = "tests.envs.test_env_factories:Plain"
    texts = ["gymnasium.wrappers:TimeAwareObservation", own]
    values = {**TINY, "total_steps": 16, "run_dir": str(tmp_path), "wrapper": texts}
    saved = train(Config(**values)).checkpoint
    for given in ({}, {"wrapper": ["a:B"]}, {"wrapper": texts[0]}):
        with pytest.raises(CheckpointError, match=f"would import {own}.*--wrapper={own}"):
            load_policy(saved, **given).make_env()
    policy = load_policy(saved, wrapper=texts)
    assert policy.make_env().observation_space == policy.spaces.observations
    assert policy.spaces.observations.shape == (5,)
    assert policy.config.wrapper == texts
    assert train(Config(**{**values, "resume": str(tmp_path), "run_dir": None})).steps == 16


class Listens(Target):
    """Cannot have its port."""

    def __init__(self, port: int) -> None:
        raise OSError(errno.EADDRINUSE, "Address already in use")


def test_a_port_that_is_taken_is_named() -> None:
    flags = {"env_name": f"{__name__}:Listens", "env_kwargs": {"port": "{9000+index}"}}
    with pytest.raises(WorkerError, match=r"made with port=9000, which must give it a port of its"):
        make_env(**flags)
