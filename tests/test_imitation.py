"""Cloning: what is read of recorded episodes, and what a policy has learned from them."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from examples.imitation import Cloning, inverse, read
from ppo import load_policy
from ppo.checkpoint import load
from ppo.cli import main
from ppo.envs.spaces import action_converter
from ppo.errors import ConfigError
from tests.running import Own, assert_same_state, make_spaces, train
from tests.worlds import Constant

ENDS = np.arange(200) % 10 == 9  # 20 episodes of ten steps
FAR = Box(np.float32([-1000, 0]), np.float32([1000, 4]))


class Signs(Constant):
    """Shows two numbers."""

    observation_space = Box(-np.inf, np.inf, (2,))
    action_space = Discrete(2, start=3)

    def reset(self, **options):
        super().reset(**options)
        return np.float32([50, 7]), {}

    def step(self, action):
        return np.float32([50 + action, 7]), *super().step(action)[1:]


def recorded(remembers=False):
    """Return episodes in which the action follows the sign of this or the previous number."""
    rows = np.random.default_rng(0).normal(50, 10, (20, 11))
    signs = rows[:, :10] > 50
    if remembers:
        signs = np.concatenate([signs[:, :1] & False, signs[:, :-1]], 1)
    observations = np.stack([rows, np.full_like(rows, 7)], -1).astype(np.float32)
    return {
        "observations": observations.reshape(220, 2),
        "actions": 3 + signs.ravel(),
        "terminations": ENDS,
        "truncations": np.zeros(200),
    }


def shown(tables):
    """Return the observations on which actions followed."""
    return tables["observations"].reshape(20, 11, 2)[:, :10]


def assert_statistics_of(tables, policy):
    found, wanted = policy.normalize.statistics, shown(tables)[..., 0]
    np.testing.assert_allclose(found.mean, [wanted.mean(), 7], rtol=1e-6)
    np.testing.assert_allclose(found.variance, [wanted.var(), 1], rtol=1e-6)


def write(folder, **tables):
    np.savez(folder / "x.npz", **{**recorded(), **tables})
    return str(folder / "x.npz")


def test_tables_are_what_workers_would_have_written():
    parts = {"goal": Discrete(3, start=1), "arm": Tuple([Box(-9, 9, (2,)), MultiBinary(1)])}
    spaces = make_spaces(Dict(parts), Discrete(4), frame_stack=2, has_masks=True)
    arm = np.arange(14).reshape(7, 2)
    found = read(
        spaces,
        {
            "observations.goal": np.array([1, 2, 3, 1, 2, 3, 1]),
            "observations.arm.0": arm,
            "observations.arm.1": np.ones((7, 1)),
            "actions": np.array([0, 1, 2, 3, 0]),
            "action_masks": np.eye(4)[[0, 1, 0, 2, 3, 0, 0]],
            "terminations": np.array([0, 1, 0, 0, 0]),
            "truncations": np.array([0, 0, 0, 0, 1]),
        },
    )
    rows = [0, 1, 3, 4, 5]  # the others are last observations
    newest = np.concatenate([arm[rows], np.ones((5, 1)), np.eye(3)[[0, 1, 0, 1, 2]]], 1)
    before = newest[[0, 0, 2, 2, 3]]
    np.testing.assert_array_equal(found["observations"], np.concatenate([before, newest], 1))
    np.testing.assert_array_equal(found["starts"], [1, 0, 1, 0, 0])
    np.testing.assert_array_equal(found["actions"], [[0], [1], [2], [3], [0]])
    np.testing.assert_array_equal(found["action_masks"], np.eye(4)[[0, 1, 2, 3, 0]])


@pytest.mark.parametrize(
    "acts", [Discrete(3, start=5), MultiDiscrete([2, 3], start=[1, -1]), MultiBinary((2, 1)), FAR]
)
def test_a_policys_actions_lead_to_those_of_the_file(acts):
    actions = np.stack([acts.sample() for _ in range(9)])
    columns = inverse(acts, actions)
    np.testing.assert_allclose(action_converter(acts)(columns), actions, atol=1e-3)


@pytest.mark.parametrize("model", ["mlp", "lstm"])
def test_an_expert_is_imitated_and_values_and_statistics_stay(model, tmp_path):
    tables = recorded(remembers=model == "lstm")
    flags = {"model": model, "hidden_size": 32, "normalize_observations": True}
    train(Signs, tmp_path / "first", 0, **flags)
    train(Signs, tmp_path / "run", 0, [Cloning(write(tmp_path, **tables))], **flags)
    policy = load_policy(tmp_path / "run", Signs)
    assert_statistics_of(tables, policy)
    found = []
    for episode in shown(tables):
        policy.reset()
        found.append([policy.predict(x) for x in episode])
    assert np.mean(np.ravel(found) == tables["actions"]) > 0.95
    states = [load(tmp_path / x / "checkpoints" / "last.safetensors") for x in ("first", "run")]
    np.testing.assert_array_equal(*[x["model.value_head.weight"] for x in states])


def test_a_lone_last_step_joins_the_others(tmp_path):
    tables = {name: x[: 34 if name == "observations" else 33] for name, x in recorded().items()}
    tables["terminations"] = np.arange(33) == 32
    train(Signs, tmp_path / "run", 0, [Cloning(write(tmp_path, **tables))], model=Own)


def test_statistics_stay_in_training_and_a_run_goes_on_without_the_file(tmp_path):
    cloning = [Cloning(write(tmp_path))]
    flags = {"normalize_observations": True}
    train(Signs, tmp_path / "whole", 2, cloning, **flags)
    train(Signs, tmp_path / "run", 1, [Cloning(cloning[0].file)], **flags)
    (tmp_path / "x.npz").unlink()
    train(Signs, tmp_path / "run", 2, [Cloning(cloning[0].file)], **flags)
    assert_same_state(tmp_path / "run", tmp_path / "whole")
    assert_statistics_of(recorded(), load_policy(tmp_path / "run", Signs))


WRONG = ["actions"] * 2 + ["terminations"] + ["observations"] * 4
VALUES = [np.full(199, 3), np.full(200, 2), np.zeros(200), np.ones((200, 2)), np.ones((220, 3))]
VALUES += [np.full((220, 2), np.nan), np.array([{}] * 220)]  # the last one needs pickle


@pytest.mark.parametrize(("name", "value"), [*zip(WRONG, VALUES, strict=True)])
def test_a_file_that_does_not_fit_is_refused_and_leaves_no_folder(name, value, tmp_path):
    file = write(tmp_path, **{name: value})
    with pytest.raises(ConfigError, match=f"{file} cannot be imitated"):
        train(Signs, tmp_path / "run", 1, [Cloning(file)])
    assert not (tmp_path / "run").exists()


def test_a_run_that_only_imitates_is_one_that_others_begin_with(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    flags = ["--preset=none", "--num_workers=0", "--eval_episodes=0", "--logger=none"]
    env, file = "tests.test_imitation:Signs", write(tmp_path, seeds=np.arange(20))
    callback = f"--callback=examples.imitation:Cloning(file='{file}')"
    imitate = [callback, "--total_steps=0", "--name=cloned"]
    assert main([env, *imitate, *flags]) == 0
    assert "held-out log-probability" in capsys.readouterr().err
    size = ["--num_envs=2", "--num_steps=16", "--total_steps=64", "--name=trained"]
    assert main([env, "--init_from=cloned", *size, *flags]) == 0
