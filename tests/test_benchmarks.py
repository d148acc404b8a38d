"""Benchmarks give both trainers the same work, and compare them rightly."""

import shlex
from typing import Any

import gymnasium
import pytest
from gymnasium import spaces

from benchmarks import choices, workloads
from benchmarks.internals import num_sides
from benchmarks.trainers import SB3, plain_maker
from benchmarks.workloads import WORKLOADS
from ppo.algorithm.numpy_learner import LARGE
from ppo.config.config import Config
from ppo.config.flags import parse_flags
from ppo.config.resolve import resolve
from ppo.models import make_model

CHOICES = [(env_name, flag) for env_name, flags in choices.CHOICES.items() for flag in flags]

per_workload = pytest.mark.parametrize("name", WORKLOADS)


def config_of(env_name: str, flags: str) -> Config:
    return Config(**parse_flags(shlex.split(flags), Config), env_name=env_name)


@per_workload
def test_the_settings_of_both_trainers_mean_the_same(name: str) -> None:
    workload = WORKLOADS[name]
    ours = config_of(workload.env_name, workload.own_flags)
    theirs = {**SB3, **workload.sb3_settings}
    assert ours.num_envs == workload.num_envs
    assert ours.num_steps == theirs["n_steps"]
    assert ours.rollout_size == ours.num_minibatches * theirs["batch_size"]
    assert ours.normalize_observations == ours.normalize_rewards == workload.normalizes
    assert ours.normalize_advantages == "minibatch"
    assert ours.value_coef == 2 * theirs["vf_coef"]  # our loss has a factor 1/2
    same = {
        "num_epochs": "n_epochs",
        "learning_rate": "learning_rate",
        "clip_coef": "clip_range",
        "clip_value_coef": "clip_range_vf",
        "entropy_coef": "ent_coef",
        "gamma": "gamma",
        "gae_lambda": "gae_lambda",
        "max_grad_norm": "max_grad_norm",
    }
    for flag, setting in same.items():
        assert getattr(ours, flag) == theirs[setting], flag


def test_the_workload_by_defaults_has_those_of_stable_baselines3() -> None:
    PPO = pytest.importorskip("stable_baselines3").PPO
    settings = {**SB3, **WORKLOADS["sb3-defaults"].sb3_settings}
    of_class = PPO.__init__.__kwdefaults__ or {}
    positional = PPO.__init__.__defaults__
    names = PPO.__init__.__code__.co_varnames[: PPO.__init__.__code__.co_argcount]
    defaults = {**of_class, **dict(zip(names[-len(positional) :], positional, strict=True))}
    for setting in settings.keys() - {"policy", "device"}:
        assert settings[setting] == defaults[setting], setting


@per_workload
def test_the_networks_of_both_trainers_are_of_the_same_size(name: str) -> None:
    stable_baselines3 = pytest.importorskip("stable_baselines3")
    workload = WORKLOADS[name]
    if workload.env_name.startswith("HalfCheetah"):
        pytest.importorskip("mujoco")
    config, found = resolve(config_of(workload.env_name, workload.own_flags))
    ours = make_model(config, found.observations, found.actions)
    settings = {**SB3, **workload.sb3_settings, "n_steps": 2, "batch_size": 2}
    algorithm = stable_baselines3.PPO
    if name == "memory":
        algorithm = pytest.importorskip("sb3_contrib").RecurrentPPO
    theirs = algorithm(env=plain_maker(workload.env_name)(), **settings).policy
    if name == "memory":
        assert lstm_sizes(ours) == lstm_sizes(theirs) == [128]
    else:
        assert shapes(ours) == shapes(theirs)


def shapes(model: Any) -> list[tuple[int, ...]]:
    return sorted(tuple(parameter.shape) for parameter in model.parameters() if parameter.ndim == 2)


def lstm_sizes(model: Any) -> list[int]:
    return [part.hidden_size for part in model.modules() if type(part).__name__ == "LSTM"]


def test_both_trainers_see_the_same_environment_without_velocities() -> None:
    env_name = WORKLOADS["memory"].env_name
    env = plain_maker(env_name)()
    assert env.observation_space == resolve(Config(env_name))[1].observations
    assert env.observation_space.shape == (2,)
    assert env.unwrapped.render_mode is None


def test_ours_is_compared_with_the_fastest_peer() -> None:
    speeds = {"ours": [10.0, 40.0, 30.0], "one": [10.0, 9.0, 11.0], "two": [20.0, 8.0, 15.0]}
    runs = {name: [{"steps_per_second": x} for x in each] for name, each in speeds.items()}
    found = workloads.compare(runs)
    assert found["medians"] == {"ours": 30, "one": 10, "two": 15}
    assert found["best_peer"] == "two"
    assert found["ratios"] == {"of_medians": 2, "of_pairs": [0.5, 5, 2]}
    shown = workloads.show({"memory": found}).splitlines()
    assert shown[-1].count(" | ") == shown[0].count(" | ")
    assert "| 30 | 10 / 15 | 2.00 | 0.50, 5.00, 2.00 |" in shown[-1]


@per_workload
@pytest.mark.parametrize("is_quick", [False, True])
def test_runs_are_of_three_whole_iterations_or_more(name: str, is_quick: bool) -> None:
    workload = WORKLOADS[name]
    steps = workloads.steps_of(workload, is_quick)
    assert steps % workload.rollout_size == 0
    assert steps >= 3 * workload.rollout_size


def test_policy_and_value_take_a_thread_each_for_large_minibatches_if_they_share_nothing() -> None:
    config = Config(model="mlp", share_trunk=False)
    assert num_sides(config, LARGE) == 2
    assert num_sides(config, LARGE - 1) == 1
    assert num_sides(Config(model="mlp", share_trunk=True), LARGE) == 1
    assert num_sides(Config(model="cnn", share_trunk=False), LARGE) == 1


@pytest.mark.parametrize(("env_name", "flag"), CHOICES)
def test_a_choice_is_one_flag_that_suits_the_environment(env_name: str, flag: str) -> None:
    default = vars(config_of(env_name, choices.DEFAULT))
    chosen = config_of(env_name, f"{choices.DEFAULT} {flag}")
    different = [name for name, value in vars(chosen).items() if value != default[name]]
    assert different == [flag.removeprefix("--").partition("=")[0]]
    resolve(chosen)


def test_choices_of_spaces_are_those_that_their_names_say() -> None:
    actions = {
        "MultiBinaryActions": spaces.MultiBinary,
        "MultiDiscreteActions": spaces.MultiDiscrete,
        "DictActions": spaces.Dict,
        "Masks": spaces.Discrete,
    }
    for name, kind in actions.items():
        env = wrapped(name)
        env.reset(seed=1)
        assert isinstance(env.action_space, kind)
        env.action_space.seed(1)
        info = env.step(env.action_space.sample())[-1]
        assert ("action_mask" in info) == (name == "Masks")
    env = wrapped("DictObservations")
    assert env.observation_space.contains(env.reset(seed=1)[0])
    assert {part.shape for part in env.observation_space.values()} == {(2,)}


def wrapped(name: str) -> Any:
    from benchmarks import choice_environments

    return getattr(choice_environments, name)(gymnasium.make("CartPole-v1"))


@pytest.mark.slow
@per_workload
def test_a_workload_is_measured(name: str) -> None:
    pytest.importorskip("sb3_contrib")
    pytest.importorskip("mujoco")
    found = workloads.measure(name, "", [1], 1, is_quick=True)
    assert found["medians"].keys() == {"ours", "SB3, torch threads: 1"}
    assert min(found["medians"].values()) > 0


@pytest.mark.slow
def test_a_choice_is_measured_beside_the_default() -> None:
    found = choices.measure("CartPole-v1", "--activation=relu", 4096, 1)
    assert found["runs"].keys() == {"default", "choice"}
    rows = choices.show([found]).splitlines()
    assert len(rows) == 3
    assert len({row.count(" | ") for row in rows}) == 1
