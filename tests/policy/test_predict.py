"""What a loaded policy takes for an observation: what the environment shows, one or n of them."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from ppo import Config, Policy, load_policy, train
from tests.running import TINY
from tests.teams import Relay

SPACES: dict[str, Any] = {
    "states": spaces.Discrete(16),
    "states from -2": spaces.Discrete(5, start=-2),
    "one state": spaces.Discrete(1, start=4),
    "choices": spaces.MultiDiscrete([3, 2, 4], start=[0, 1, -1]),
    "grid of choices": spaces.MultiDiscrete([[2, 3], [4, 2]]),
    "bits": spaces.MultiBinary(4),
    "grid of bits": spaces.MultiBinary((2, 3)),
    "bits in a row": spaces.MultiBinary((1, 4)),
    "scalar": spaces.Box(-1, 1, ()),
    "whole scalar": spaces.Box(-5, 5, (), np.int64),
    "one number": spaces.Box(-1, 1, (1,)),
    "numbers": spaces.Box(-np.inf, np.inf, (3,), np.float64),
    "half": spaces.Box(-1, 1, (3,), np.float16),
    "table": spaces.Box(-1, 1, (2, 3)),
    "whole numbers": spaces.Box(-5, 5, (3,), np.int32),
    "bytes": spaces.Box(0, 255, (3,), np.uint8),
    "cells": spaces.Box(0, 10, (3, 4, 2), np.uint8),
    "dict": spaces.Dict(goal=spaces.Discrete(3), arm=spaces.Dict(x=spaces.Box(-1, 1, (2,)))),
    "dict of one": spaces.Dict(observation=spaces.Discrete(3)),
    "tuple": spaces.Tuple((spaces.Discrete(3, start=1), spaces.Box(-1, 1, ()))),
    "tuple of one": spaces.Tuple((spaces.Discrete(3),)),
    "tuple of tuples": spaces.Tuple(
        (spaces.Tuple((spaces.Discrete(2),)), spaces.Tuple((spaces.MultiBinary(2),)))
    ),
}


class Shows(gymnasium.Env):
    """Shows members of a space at random, for episodes of three steps."""

    action_space = spaces.Box(-1, 1, (2,))

    def __init__(self, name: str) -> None:
        self.observation_space = SPACES[name]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.steps += 1
        return self.observation_space.sample(), float(action[0]), self.steps == 3, False, {}


Load = Callable[..., Policy]


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """Return a function that loads the policy of a tiny run in an environment; runs are kept."""
    runs: dict[str, Policy] = {}

    def load(env_name: str, **values: Any) -> Policy:
        key = f"{env_name} {values}"
        if key not in runs:
            flags = {**TINY, "total_steps": 48, **values, "env_name": env_name}
            run_dir = str(tmp_path_factory.mktemp("runs") / "run")
            saved = train(Config(**{**flags, "run_dir": run_dir})).checkpoint
            runs[key] = load_policy(saved, env_name, values.get("model"))
        runs[key].reset()
        return runs[key]

    return load


def policy_of(load: Load, name: str, **values: Any) -> Policy:
    return load("tests.policy.test_predict:Shows", env_kwargs={"name": name}, **values)


def members(space: Any, count: int) -> list[Any]:
    space.seed(1)
    return [space.sample() for _ in range(count)]


def batch(space: Any, observations: list[Any]) -> Any:
    """Return n observations as gymnasium's vector environments show them."""
    out: Any = create_empty_array(space, len(observations))
    found = concatenate(space, observations, out)
    assert batch_space(space, len(observations)).contains(found)
    return found


@pytest.mark.parametrize("name", SPACES)
def test_what_the_environment_shows_is_an_observation(load: Load, name: str) -> None:
    policy = policy_of(load, name)
    space = SPACES[name]
    shown = members(space, 7)
    values = [policy.values(one) for one in shown]
    if name not in ("one state", "cells"):
        assert len({*values}) > 1
    for one, value in zip(shown, values, strict=True):
        assert policy.predict(one).shape == (2,)
        assert policy.distribution(one).mode().shape == (1, 2)
        assert np.isfinite(policy.log_probs(one, policy.predict(one)))
        if not isinstance(one, (dict, tuple)):
            assert policy.values({"observation": one}) == value
    for count in (2, 3, 7):
        many = batch(space, shown[:count])
        assert policy.values(many).tolist() == pytest.approx(values[:count], abs=1e-6)
        assert policy.values(shown[:count]).tolist() == pytest.approx(values[:count], abs=1e-6)
        policy.reset()
        assert policy.predict(many).shape == (count, 2)
        policy.reset()


@pytest.mark.parametrize("name", SPACES)
def test_what_make_env_shows_is_the_same_observation(load: Load, name: str) -> None:
    policy = policy_of(load, name)
    shown = [Shows(name).reset(seed=seed)[0] for seed in range(5)]
    env = policy.make_env()
    own = [np.array(env.reset(seed=seed)[0]) for seed in range(5)]
    assert all(env.observation_space.contains(one) for one in own)
    values = [policy.values(one) for one in shown]
    assert [policy.values(one) for one in own] == values
    assert policy.values(np.stack(own)).tolist() == pytest.approx(values, abs=1e-6)


def test_states_are_told_from_a_one_hot_vector(load: Load) -> None:
    policy = load("FrozenLake-v1")
    one_by_one = [policy.predict(state) for state in range(16)]
    values = [policy.values(state) for state in range(16)]
    assert len({*values}) == 16
    rows = np.eye(16, dtype=np.float32)
    assert [policy.values(row) for row in rows] == values
    assert policy.values(rows.astype(np.int64)).tolist() == pytest.approx(values, abs=1e-6)
    for states in (np.arange(16), np.arange(16, dtype=np.uint8), list(range(16))):
        assert policy.predict(states) == one_by_one
    assert policy.values(np.zeros(16, np.int64)) == pytest.approx([values[0]] * 16, abs=1e-6)
    env = gymnasium.make_vec("FrozenLake-v1", 16)
    assert policy.predict(env.reset()[0]) == [one_by_one[0]] * 16


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("states", np.eye(16, dtype=np.int64)[1]),
        ("states", np.eye(16, dtype=np.int64)[1].tolist()),
        ("scalar", np.float32([0.5])),
        ("whole scalar", np.array([2])),
    ],
)
def test_an_array_that_may_be_one_or_n_is_refused(load: Load, name: str, given: Any) -> None:
    policy = policy_of(load, name)
    with pytest.raises(ValueError, match=r"the environment shows.*or one .*: give {'observation'"):
        policy.predict(given)
    assert policy.values({"observation": given}).shape == (len(given),)
    assert policy.values(np.array(given)[None]).shape == (1,)


def test_an_array_is_read_in_the_form_in_which_it_is_an_observation(load: Load) -> None:
    policy = policy_of(load, "one state")
    assert policy.values(np.array([4])).shape == (1,)
    assert isinstance(policy.values(np.array([1])), float)
    policy = policy_of(load, "bits in a row")
    assert isinstance(policy.values(np.array([[0, 1, 1, 0]])), float)
    assert policy.values(np.array([[[0, 1, 1, 0]]])).shape == (1,)


NO_CHOICES: list[tuple[str, Any, str]] = [
    ("states", 16, r"the observation is outside of Discrete\(16\): 16"),
    ("states", -1, "outside of Discrete"),
    ("states", np.array([3, 0, 99]), r"row 2 of the observation is outside of Discrete\(16\): 99"),
    ("states", np.array([*range(15), 16]), r"row 15 of .* is outside of Discrete\(16\): 16"),
    ("states", 1.5, "values that int64 has not"),
    ("states", np.nan, "the observation is not finite"),
    ("states", np.full(16, 0.5), "values that int64 has not"),
    ("states", np.zeros(16), "the observation is no vector of Discrete"),
    ("states", np.ones((2, 16)), "row 0 of the observation is no vector of Discrete"),
    ("states", "3", "is <U1 with values that int64 has not"),
    ("states", None, "is object with values that int64 has not"),
    ("states", [[1], [2, 3]], "observation is no array of numbers"),
    ("states from -2", 3, r"outside of Discrete\(5, start=-2\): 3"),
    ("states from -2", np.array([-2, -3]), "row 1 of .*: -3"),
    ("choices", np.array([3, 1, -1]), r"outside of MultiDiscrete.*\[3, 1, -1\]"),
    ("choices", np.array([0, 0, -1]), "outside of MultiDiscrete"),
    ("choices", np.eye(9)[0], "no vector of MultiDiscrete"),
    ("bits", np.array([0, 1, 2, 0]), "no vector of MultiBinary"),
    ("bits", np.array([0, 1, 256, 0]), "values that int8 has not"),
    ("bits", np.array([[0, 1, 0, 0], [0, -1, 0, 1]]), "row 1 of the observation is no vector"),
    ("grid of bits", np.full((2, 3), 3), "outside of MultiBinary"),
    ("whole numbers", np.array([0, 2**40, 0]), "values that int32 has not"),
    ("bytes", np.array([0, 256, 0], np.uint16), "values that uint8 has not"),
    ("dict", {"goal": 3, "arm": {"x": [0, 0]}}, "goal of the observation is outside of Discrete"),
    ("dict", np.zeros(5), "goal of the observation is no vector of Discrete"),
    (
        "dict",
        [{"goal": 0, "arm": {"x": [0, 0]}}, {"goal": 7, "arm": {"x": [0, 0]}}],
        "row 1 of the observations: goal of the observation is outside",
    ),
    ("tuple", (0, 0.5), r"0 of the observation is outside of Discrete\(3, start=1\): 0"),
]


@pytest.mark.parametrize(("name", "given", "message"), NO_CHOICES)
def test_choices_that_a_space_does_not_have_are_refused(
    load: Load, name: str, given: Any, message: str
) -> None:
    policy = policy_of(load, name)
    for ask in (policy.predict, policy.values, policy.distribution):
        with pytest.raises(ValueError, match=message):
            ask(given)


NOT_FINITE: list[tuple[str, Any, str]] = [
    ("numbers", [0, np.nan, 0], "the observation is not finite in float32: nan"),
    ("numbers", [0, np.inf, 0], "the observation is not finite in float32: inf"),
    ("numbers", [[0, 0, 0], [0, 0, -np.inf]], "row 1 of the observation is not finite.*: -inf"),
    ("numbers", [1e300, 0, 0], r"not finite in float32: 1e\+300"),
    ("numbers", [1e300, -1e300, 0], "not finite in float32"),
    ("numbers", np.full((100, 3), np.nan), "row 0 of the observation is not finite"),
    ("half", [1e30, 0, 0], "not finite"),
    ("table", [[0, 0, 0], [0, 1e39, 0]], "not finite in float32: inf"),
    ("table", np.full((4, 2, 3), np.nan), "row 0 of the observation is not finite"),
    ("scalar", np.nan, "the observation is not finite"),
    ("scalar", [0, np.nan], "row 1 of the observation is not finite"),
    ("whole numbers", [0, np.nan, 0], "not finite"),
    ("dict", {"goal": 1, "arm": {"x": [0, np.nan]}}, "arm.x of the observation is not finite"),
    ("dict", {"goal": [1, 1], "arm.x": [[0, 0], [0, np.inf]]}, "row 1 of arm.x of the observation"),
    ("dict", [0, 0, 0, 1, np.nan], "goal of the observation is no vector|arm.x .* is not finite"),
    ("tuple", (1, np.nan), "1 of the observation is not finite"),
]


@pytest.mark.parametrize(("name", "given", "message"), NOT_FINITE)
def test_what_is_not_finite_is_refused(load: Load, name: str, given: Any, message: str) -> None:
    policy = policy_of(load, name)
    asked = (
        policy.predict,
        policy.values,
        policy.distribution,
        lambda observation: policy.log_probs(observation, np.zeros(2)),
    )
    for ask in asked:
        with pytest.raises(ValueError, match=message):
            ask(given)


def test_large_numbers_that_are_finite_are_observations(load: Load) -> None:
    policy = policy_of(load, "numbers")
    assert np.isfinite(policy.predict(np.float64([3e38, -3e38, 3e38]))).all()


@pytest.mark.parametrize("name", ["numbers", "dict", "states", "scalar", "bits"])
def test_stacks_of_observations_are_checked_as_each_of_them(load: Load, name: str) -> None:
    policy = policy_of(load, name, frame_stack=3)
    observation, _ = policy.make_env().reset(seed=0)
    value = policy.values(observation)
    assert policy.values(np.stack([observation] * 2)) == pytest.approx([value] * 2, abs=1e-6)
    wrong = np.array(observation, np.float64)
    wrong[-1] = np.nan
    with pytest.raises(ValueError, match=r"(arm.x of |the )?.*observation is not finite"):
        policy.predict(wrong)
    if name == "states":
        with pytest.raises(ValueError, match=r"is no vector of Discrete\(16\)"):
            policy.predict(np.arange(48))
    with pytest.raises(ValueError, match="the last observations in one"):
        policy.predict(np.zeros(7))


@pytest.mark.parametrize("action", [[np.nan, 0], [0, np.inf], [1e300, 0]])
@pytest.mark.parametrize("squash", [False, True])
def test_actions_that_are_not_finite_have_no_probability(
    load: Load, action: Any, squash: bool
) -> None:
    policy = policy_of(load, "numbers", squash_actions=squash)
    with pytest.raises(ValueError, match="the action is not finite"):
        policy.log_probs(np.zeros(3), np.array(action))
    with pytest.raises(ValueError, match="row 1 of the action is not finite"):
        policy.log_probs(np.zeros((2, 3)), np.array([[0, 0], action]))


@pytest.mark.parametrize("action", [np.nan, 1.5, np.inf, -1, 4])
def test_actions_that_are_no_choices_have_no_probability(load: Load, action: float) -> None:
    policy = load("FrozenLake-v1")
    with pytest.raises(ValueError, match="action"):
        policy.log_probs(0, action)


def test_recurrent_states_that_are_not_finite_are_refused(load: Load) -> None:
    policy = policy_of(load, "numbers", model="lstm", hidden_size=8)
    state = policy.initial_state(2)
    state[1, 3] = np.nan
    with pytest.raises(ValueError, match="row 1 of the recurrent state is not finite"):
        policy.predict(np.zeros((2, 3)), state=state)
    policy.predict(np.zeros(3))
    before = policy.state.copy()
    with pytest.raises(ValueError, match="the observation is not finite"):
        policy.predict([0, np.nan, 0])
    np.testing.assert_array_equal(policy.state, before)


def test_a_part_that_the_policy_does_not_read_may_be_anything(load: Load) -> None:
    name = "examples.privileged_critic"
    policy = load(f"{name}:Guess", model=f"{name}:PrivilegedCritic")
    assert policy.parts == ["seen"]
    for hidden in ([np.nan], "none", [1e300]):
        assert policy.predict({"seen": [0.5], "privileged": hidden}) == policy.predict(
            {"seen": [0.5]}
        )
    assert policy.predict(np.array([np.nan, 0.5])) == policy.predict({"seen": [0.5]})
    with pytest.raises(ValueError, match="privileged of the observation is not finite"):
        policy.values({"seen": [0.5], "privileged": [np.nan]})
    with pytest.raises(ValueError, match="seen of the observation is not finite"):
        policy.predict(np.array([0.5, np.nan]))


@pytest.mark.parametrize("masks", ["info", "observation"])
def test_what_an_agent_of_a_team_shows_is_an_observation(load: Load, masks: str) -> None:
    policy = load("tests.teams:Relay", num_envs=3, num_steps=16, env_kwargs={"masks": masks})
    team = Relay(masks=masks)
    observations, infos = team.reset()
    for agent, observation in observations.items():  # the mask forbids 1
        drawn = {policy.predict(observation, False, infos[agent]) for _ in range(50)}
        assert drawn == {0}
    shown = [*observations.values()]
    assert policy.predict(shown, False, [*infos.values()]) == [0, 0]
    if masks == "observation":
        assert policy.predict(shown[0], False) == 0
        assert policy.predict(shown, False) == [0, 0]
        together = {key: np.stack([one[key] for one in shown]) for key in shown[0]}
        assert policy.predict(together, False) == [0, 0]
        assert policy.predict(together, False, [{}, {}]) == [0, 0]
