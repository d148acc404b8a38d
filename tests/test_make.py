"""Making environments: from ids, functions and classes, with wrappers; and a first look."""

from decimal import Decimal
from fractions import Fraction
from typing import Any
from unittest.mock import Mock

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from ppo.config import Config
from ppo.envs.episodes import RecordEpisode, episode_metrics, set_attributes
from ppo.envs.make import EnvMaker, find_spec
from ppo.envs.seeding import Stream, integer_seed
from ppo.errors import ConfigError
from ppo.extras.repeat import RepeatAction
from tests.running import running, train
from tests.worlds import Constant, Counting


def make_env(env_name: Any, index: int = 0, **flags: Any) -> Any:
    return EnvMaker(Config(env_name=env_name, **flags))(index)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("LunarLander-v2", "LunarLander-v3"),
        ("PongDeterministic-v4", "PongNoFrameskip-v4"),
        ("ALE/Pong", "ALE/Pong-v5"),
        ("CartPole-v0", "CartPole-v0"),
    ],
)
def test_ids_that_are_gone_lead_to_their_successors(given, found):
    assert find_spec(given).id == found


class Arm(Counting):
    def __init__(self, index: int, port: int = 9) -> None:
        self.index, self.port = index, port


@pytest.mark.parametrize(
    "creator", [Arm, "tests.test_make:Arm", lambda index, port=9: Arm(index, port)]
)
def test_classes_and_functions_get_the_number_of_the_environment_and_arguments(creator):
    for index in (0, 7):
        env = make_env(creator, index, env_kwargs={"port": 5})
        assert (env.unwrapped.index, env.unwrapped.port) == (index, 5)


def limited(**options: Any) -> Any:
    return gymnasium.make("Pendulum-v1", **options)


@pytest.mark.parametrize(
    "make",
    [
        limited,
        "tests.test_make:limited",
        lambda: gymnasium.wrappers.RescaleAction(limited(max_episode_steps=9), -1.0, 1.0),
        "Pendulum-v1",
        lambda num_envs: SyncVectorEnv([limited] * num_envs),
        lambda num_envs: AsyncVectorEnv([limited] * num_envs),
    ],
)
@pytest.mark.parametrize("steps", [8, 201])
def test_the_limit_that_is_given_counts_more_than_that_of_the_maker(make, steps, tmp_path):
    flags = {"max_episode_steps": steps, "num_steps": 202, "num_envs": 1, "num_minibatches": 1}
    with running(make, tmp_path, **flags) as run:
        episodes = run.collect().report.episodes
    assert {x.episode_length for x in episodes} == {steps}


IMAGE, COLORS = Box(0, 255, (40, 40, 3), np.uint8), np.full((40, 40, 3), 200)
VECTOR, CHOICE, CHOICES = Box(-9, 9, (2,)), Discrete(3, start=1), MultiDiscrete([2, 3])


@pytest.mark.parametrize(
    ("space", "shown", "reward", "said"),
    [
        (VECTOR, [1, 2.5], torch.ones(()), ""),
        (VECTOR, (Fraction(1), Decimal(2)), Fraction(1), ""),
        (VECTOR, torch.ones(2, requires_grad=True), np.ones(1), ""),
        (IMAGE, COLORS.astype(np.float32), True, ""),
        (IMAGE, COLORS.tolist(), torch.ones(1, 1), ""),
        (CHOICE, torch.tensor(2), Decimal(1), ""),
        (CHOICES, [1.0, 2], 1, ""),
        (VECTOR, [[1], [2, 3]], 1, "observation"),
        (VECTOR, [None, "a"], 1, "observation"),
        (IMAGE, COLORS / 255, 1, "uint8"),
        (Box(0, 9, (2,), np.int64), [0.5, 1], 1, "int64"),
        (Box(0, 9, (2,), np.uint8), [-1, 1], 1, "uint8"),
        (CHOICE, 0, 1, "Discrete"),
        (CHOICE, 1.5, 1, "int64"),
        (CHOICES, [-1, 0], 1, "MultiDiscrete"),
        *((VECTOR, np.ones(2), reward, "reward") for reward in (None, "a", np.ones(2))),
    ],
)
def test_what_can_be_converted_is_and_what_cannot_is_a_sentence(
    space, shown, reward, said, tmp_path
):
    class Returning(Constant):
        observation_space = space

        def reset(self, **options: Any) -> Any:
            return shown, super().reset(**options)[1]

        def step(self, action: Any) -> Any:
            return shown, reward, *super().step(action)[2:]

    if not said:
        assert train(Returning, tmp_path, 1, eval_episodes=1).evaluation.mean == 10
        return
    with pytest.raises(ConfigError, match=said) as error:
        train(Returning, tmp_path, 1)
    assert len(error.value.args) == 1  # without a traceback


class Doubling(Counting):
    """Doubles the actions that it is given, in place."""

    action_space = spaces.Box(-9, 9, (2,))

    def step(self, action: Any) -> Any:
        action *= 2
        self.done = [*getattr(self, "done", []), action.tolist()]
        self.steps += 1
        return self.observe(), 1.0, self.steps == 4, False, {"step": self.steps}


def test_repeated_actions_are_copies_and_end_with_the_episode():
    action = np.float32([0.5, -0.25])
    env: Any = RepeatAction(Doubling(), 3)
    env.reset(seed=0)
    assert env.step(action)[1:] == (3.0, False, False, {"step": 3})
    assert env.unwrapped.done == [[1, -0.5]] * 3
    assert action.tolist() == [0.5, -0.25]
    assert env.step(action)[1:] == (1.0, True, False, {"step": 4})


def test_attributes_are_passed_to_set_training_or_set_by_name():
    class Trained(gymnasium.Wrapper):
        def set_training(self, **attributes: Any) -> None:
            self.told = attributes

    env = RecordEpisode(Trained(RecordEpisode(Counting())))
    set_attributes(env, {"level": 2})
    assert env.env.told == {"level": 2}  # type: ignore[attr-defined]
    plain: Any = RecordEpisode(Arm(1))
    set_attributes(plain, {"port": 3})
    assert plain.unwrapped.port == 3
    for name in ("prot", "step"):
        with pytest.raises(ValueError, match=name):
            set_attributes(plain, {name: 3})
    set_attributes(plain, {})


def test_finite_numbers_of_an_episodes_last_info_are_metrics():
    known = {"int": 1, "float": np.float32(0.5), "array": np.array([3]), "is_success": True}
    left_out = {"nan": float("nan"), "text": "1", "two": np.ones(2), "_own": 1, "lives": 1, 5: 1}
    found = episode_metrics({**known, **left_out, "episode_metrics": {"more": 4}})
    assert found == {"int": 1, "float": 0.5, "array": 3, "success_rate": 1, "more": 4}


def test_a_package_that_an_environment_needs_is_named(monkeypatch):
    error = gymnasium.error.DependencyNotInstalled("pip install it")
    monkeypatch.setattr("ppo.envs.make.load_env_creator", Mock(side_effect=error))
    with pytest.raises(ConfigError, match="pip install it"):
        make_env("CartPole-v1")


def test_golden_seeds_that_runs_recorded_earlier_depend_on():
    assert [stream.value for stream in Stream] == [1, 2, 3, 4, 5]
    assert integer_seed(0, Stream.EPISODE, 0, 0) == 3964924996
