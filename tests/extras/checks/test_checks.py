"""Checks of environments' results: InvalidEnvOutput names what is not well formed."""

import re
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ppo.envs.errors import InvalidEnvOutput
from ppo.extras.checks.observations import CheckData, checker

SPACES: dict[str, Any] = {
    "small": spaces.Box(-1, 1, (3,)),
    "large": spaces.Box(-1, 1, (9, 9)),
    "unbounded": spaces.Box(-np.inf, np.inf, (2,), np.float64),
    "unbounded and large": spaces.Box(-np.inf, np.inf, (70,), np.float64),
    "without dimensions": spaces.Box(0, 1, ()),
    "integers": spaces.Box(-5, 5, (2,), np.int32),
    "image": spaces.Box(0, 255, (10, 10, 3), np.uint8),
    "dark image": spaces.Box(0, 100, (10, 10), np.uint8),
    "choice": spaces.Discrete(3, start=2),
    "choices": spaces.MultiDiscrete([3, 2]),
    "bits": spaces.MultiBinary(4),
    "dict": spaces.Dict({"a": spaces.Box(0, 1, (2,)), "b": spaces.Discrete(2)}),
    "tuple": spaces.Tuple((spaces.Discrete(2), spaces.Dict({"x": spaces.Box(0, 1, (1,))}))),
}


class Replies(gymnasium.Env):
    """Returns what it is told to."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: Any, reset: Any = None, step: Any = None) -> None:
        self.observation_space = space
        self.on_reset, self.on_step = reset, step

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        return self.on_reset

    def step(self, action: int) -> Any:
        return self.on_step


def check(space: Any, observation: Any, reward: Any = 1.0, is_strict: bool = False) -> CheckData:
    """A step after which an observation is seen, with a reset before that shows the same."""
    env = CheckData(
        Replies(space, (observation, {}), (observation, reward, False, False, {})), is_strict
    )
    assert env.reset(seed=1)[0] is observation
    seen, got, *_ = env.step(0)
    assert seen is observation
    assert got == reward
    assert not env.problems
    return env


CONVERTED: dict[str, tuple[str, Any, Any]] = {
    "another float": ("small", np.array([0, 0.5, 1]), np.array([0, 0.5, 1], np.float32)),
    "a list": ("small", [0.0, 1.0, 0.5], np.array([0, 1, 0.5], np.float32)),
    "more digits": ("small", [0.1, 0.0, 0.0], np.array([0.1, 0, 0], np.float32)),
    "an image of floats": ("image", np.full((10, 10, 3), 9.0), np.full((10, 10, 3), 9, np.uint8)),
    "a float for a choice": ("choice", 3.0, np.array(3)),
    "bits": ("bits", [True, False, True, False], np.array([1, 0, 1, 0], np.int8)),
}


@pytest.mark.parametrize("kind", CONVERTED)
def test_numbers_of_another_type_are_converted_with_a_word_to_the_author(kind: str) -> None:
    name, observation, expected = CONVERTED[kind]
    env = CheckData(Replies(SPACES[name], (observation, {}), (observation, 1.0, False, False, {})))
    for found in (env.reset()[0], env.step(0)[0]):
        np.testing.assert_array_equal(found, expected)
    assert not env.faults
    if name in ("small", "image"):
        assert found.dtype == SPACES[name].dtype
        assert (
            f"not {found.dtype} {found.shape}, to which it is converted"
            in env.problems["observation"]
        )


def test_parts_of_dicts_and_tuples_are_converted() -> None:
    env = CheckData(Replies(SPACES["dict"], ({"a": [0, 1], "b": 1.0}, {})))
    found, _ = env.reset()
    assert found["a"].dtype == np.float32
    assert found["b"] == 1
    assert env.problems["observation"].startswith("its observation.a is [0, 1], not float32")
    env = CheckData(Replies(SPACES["tuple"], ([1, {"x": [0.5]}], {})))
    found, _ = env.reset()
    assert found == (1, {"x": np.array([0.5], np.float32)})
    assert "converted" in env.problems["observation"]


def test_a_reward_in_an_array_of_one_is_a_number() -> None:
    env = CheckData(Replies(SPACES["choice"], (2, {}), (2, np.ones((1, 1)), False, False, {})))
    env.reset()
    assert env.step(0)[1] == 1.0
    assert env.problems["reward"] == "its reward is float64 (1, 1) [[1.0]]: return a number"


def test_samples_of_a_space_pass_as_they_are() -> None:
    for space in SPACES.values():
        space.seed(0)
        for is_strict in [False, True] * 10:
            assert check(space, space.sample(), is_strict=is_strict).faults == {}


FLAWED: dict[str, tuple[str, Any, str]] = {
    "a number too many": ("small", np.zeros(4, np.float32), "float32 (4,)"),
    "objects": ("small", np.array([None, 0, 0]), "object (3,)"),
    "nothing": ("small", None, "None"),
    "not a number": ("small", np.array([0, np.nan, 0], np.float32), "nan"),
    "infinite": ("small", np.array([0, 0, np.inf], np.float32), "inf"),
    "not a number among many": ("large", np.full((9, 9), np.nan, np.float32), "nan"),
    "not a number without bounds": ("unbounded", np.array([0, np.nan]), "nan"),
    "what is infinite as float32": ("unbounded", np.array([1e300, 0]), "1e+300"),
    "the same, negative": ("unbounded", np.array([0, -1e300]), "-1e+300"),
    "what is infinite as float32 among many": (
        "unbounded and large",
        np.full(70, 1e300),
        "1.e+300",
    ),
    "a text where there are no dimensions": ("without dimensions", "0.5", "'0.5'"),
    "an image of fractions": ("image", np.full((10, 10, 3), 0.5), "float64 (10, 10, 3)"),
    "a list that is too long": ("small", 4 * [0.0], "[0.0, 0.0, 0.0, 0.0]"),
    "a number that float32 has not": ("small", [0.0, 1e300, 0.0], "inf"),
    "an image of other integers": ("image", np.full((10, 10, 3), 300), "int64 (10, 10, 3)"),
    "a fraction for a choice": ("choice", 2.5, "2.5"),
    "not a number for a choice": ("choice", float("nan"), "nan"),
    "too few choices": ("choices", np.array([1]), "[1]"),
    "a choice too many": ("choice", 5, "is outside of"),
    "fractions for choices": ("choices", np.array([1.0, 0.5]), "[1.0, 0.5]"),
    "too few bits": ("bits", np.zeros(3, np.int8), "int8 (3,)"),
    "a missing key": ("dict", {"a": np.zeros(2, np.float32)}, "'a'"),
    "a tuple for a dict": ("dict", (np.zeros(2, np.float32), 0), "(array("),
    "a flawed part after one outside": (
        "dict",
        {"a": np.full(2, 9, np.float32), "b": None},
        "None",
    ),
    "a tuple too short": ("tuple", (0,), "None"),
    "a flawed part of a part": ("tuple", (0, {"x": np.full(1, np.nan, np.float32)}), "nan"),
}


@pytest.mark.parametrize("flaw", FLAWED)
def test_a_flawed_observation_is_bad_data_and_is_shown(flaw: str) -> None:
    name, observation, shown = FLAWED[flaw]
    good = SPACES[name].sample()
    for env in (
        CheckData(Replies(SPACES[name], (observation, {}))),
        CheckData(Replies(SPACES[name], (good, {}), (observation, 1.0, False, False, {}))),
    ):
        with pytest.raises(InvalidEnvOutput, match=re.escape(shown)) as caught:  # noqa: PT012, one of the two
            env.reset(seed=0)
            env.step(0)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (None, "None"),
        (np.zeros(3, np.float32), "float32 (3,)"),
        ((np.zeros(3, np.float32), {}, {}), "{}, {}"),
    ],
)
def test_a_reset_that_does_not_return_observation_and_info_is_bad_data(
    result: Any, shown: str
) -> None:
    with pytest.raises(InvalidEnvOutput, match="reset returned .*" + re.escape(shown)):
        CheckData(Replies(SPACES["small"], result)).reset()


@pytest.mark.parametrize(
    ("after", "shown"),
    [
        ((1.0, True, {}), "True, {}"),  # as gym had it
        ((1.0, True, False, None), "None"),
        ((1.0, True, False, {}, {}), "{}, {}"),
    ],
)
def test_a_step_that_does_not_return_five_results_is_bad_data(after: tuple, shown: str) -> None:
    env = CheckData(Replies(SPACES["choice"], (2, {}), (2, *after)))
    env.reset()
    with pytest.raises(InvalidEnvOutput, match="step returned .*" + re.escape(shown)):
        env.step(0)
    env.env.on_step = None
    with pytest.raises(InvalidEnvOutput, match="step returned None"):
        env.step(0)


@pytest.mark.parametrize("ended", [True, 1, 1.0, np.True_, np.ones(1)])
def test_an_end_may_be_any_number(ended: Any) -> None:
    for ends in ((ended, False), (False, ended)):
        env = CheckData(Replies(SPACES["choice"], (2, {}), (2, 1.0, *ends, {})))
        env.reset()
        assert env.step(0)[2:4] == ends


@pytest.mark.parametrize(
    ("ended", "shown"), [("False", "'False'"), (float("nan"), "nan"), (np.str_("no"), "'no'")]
)
@pytest.mark.parametrize("kind", ["termination", "truncation"])
def test_an_end_that_is_no_number_is_bad_data_and_is_shown(
    kind: str, ended: Any, shown: str
) -> None:
    ends = (ended, False) if kind == "termination" else (False, ended)
    env = CheckData(Replies(SPACES["choice"], (2, {}), (2, 1.0, *ends, {})))
    env.reset()
    with pytest.raises(InvalidEnvOutput, match=f"its {kind} is .*{re.escape(shown)}"):
        env.step(0)


@pytest.mark.parametrize(
    ("reward", "shown"),
    [
        (None, "None"),
        ("1", "'1'"),
        (float("nan"), "nan"),
        (1e300, "1e+300"),
        (10**400, "1000"),
        (1j, "1j"),
        ([1.0], "[1.0]"),
        (np.float32("-inf"), "-inf"),
        (np.array("1"), "'1'"),
    ],
)
def test_a_reward_that_is_not_one_finite_number_is_bad_data_and_is_shown(
    reward: Any, shown: str
) -> None:
    env = CheckData(Replies(SPACES["choice"], (2, {}), (2, reward, False, False, {})))
    env.reset()
    with pytest.raises(InvalidEnvOutput, match="reward is .*" + re.escape(shown)):
        env.step(0)


def test_one_finite_number_of_any_kind_is_a_reward() -> None:
    for reward in (-3, True, 0.5, np.float16(2), np.int64(-1), np.bool_(True), np.array(3)):
        check(SPACES["choice"], 2, reward)


@pytest.mark.parametrize(
    ("name", "observation"),
    [
        ("small", np.array([0, 0, 1.5], np.float32)),
        ("large", np.full((9, 9), -2, np.float32)),
        ("integers", np.array([6, 0], np.int32)),
        ("without dimensions", np.float32(2)),
        ("dark image", np.full((10, 10), 101, np.uint8)),
        ("bits", np.array([0, 1, 2, 0], np.int8)),
        ("dict", {"a": np.full(2, 2, np.float32), "b": 0}),
        ("tuple", (0, {"x": np.full(1, -1, np.float32)})),
    ],
)
def test_what_is_outside_of_the_space_is_counted_and_bad_data_if_strict(
    name: str, observation: Any
) -> None:
    assert check(SPACES[name], observation).faults == {"observation_outside": 2}
    with pytest.raises(InvalidEnvOutput, match="is outside of"):
        check(SPACES[name], observation, is_strict=True)


@st.composite
def boxes(draw: st.DrawFn) -> tuple[spaces.Box, np.ndarray]:
    """A Box of random bounds, and numbers of its shape and dtype that are often on the bounds."""
    dtype = draw(
        st.sampled_from([np.float32, np.float64, np.float16, np.uint8, np.int8, np.int32, np.int64])
    )
    shape = draw(st.sampled_from([(), (1,), (3,), (2, 2), (64,), (65,)]))
    if np.issubdtype(dtype, np.floating):
        limit = float(min(np.finfo(dtype).max, np.finfo(np.float32).max))
        numbers: Any = st.floats(-limit, limit, width=np.finfo(dtype).bits)
        bounds: Any = numbers | st.sampled_from([-np.inf, np.inf])
    else:
        about: Any = np.iinfo(dtype)
        bounds = numbers = st.integers(max(about.min, -(2**53)), min(about.max, 2**53))
    first, second = (draw(arrays.arrays(dtype, shape, elements=bounds)) for _ in range(2))
    low, high = np.minimum(first, second), np.maximum(first, second)
    space = spaces.Box(low, high, shape, dtype)
    low, high = space.low, space.high
    within = np.clip(draw(arrays.arrays(dtype, shape, elements=numbers)), low, high)
    chosen = draw(st.sampled_from(["any", "within", "low", "high"]))
    if chosen == "any":
        return space, draw(arrays.arrays(dtype, shape, elements=numbers))
    edge = {"within": within, "low": low, "high": high}[chosen]
    return space, np.where(np.isfinite(edge), edge, within).astype(dtype)


@settings(max_examples=200)
@given(boxes())
def test_a_box_contains_what_gymnasium_says_it_does(drawn: tuple[spaces.Box, np.ndarray]) -> None:
    space, observation = drawn
    if np.abs(observation.astype(np.float64)).max() <= np.finfo(np.float32).max:
        assert checker(space)(observation) == space.contains(observation)
