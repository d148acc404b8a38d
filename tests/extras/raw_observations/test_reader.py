"""What a policy takes for an observation of an environment itself, one or n of them."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from ppo import Config, Policy
from ppo.components import Components
from ppo.config.settings import settings_of
from tests.policy.test_predict import SMALL, identity, run_of, seen_by
from tests.running import PLAIN, make_components
from tests.shown import IMAGES, SPACES, Shows
from tests.teams import Relay


def policy_of(name: str, **values: Any) -> Policy:
    """Make a policy that acts in Shows, as a new run does."""
    env = {"env_name": "tests.shown:Shows", "env_kwargs": {"name": name}}
    has_vectors = name not in IMAGES or name in ("small", "nested")
    flags = {**PLAIN, "normalize_observations": has_vectors, **env, **values}
    return Components(settings_of(Config(**flags))).policy()


def batch(space: Any, observations: list[Any]) -> Any:
    """Return n observations as gymnasium's vector environments show them."""
    out: Any = create_empty_array(space, len(observations))
    found = concatenate(space, observations, out)
    assert batch_space(space, len(observations)).contains(found)
    return found


@pytest.mark.parametrize("name", SPACES)
def test_what_the_environment_and_make_env_show_is_an_observation(name: str) -> None:
    policy, space = policy_of(name), SPACES[name]
    shown = [Shows(name).reset(seed=seed)[0] for seed in range(7)]
    values = [policy.values(one) for one in shown]
    assert len({*values}) > 1 or name in ("one state", "bytes")  # which are clipped
    for one, value in zip(shown, values, strict=True):
        assert policy.predict(one).shape == (2,)
        assert policy.distribution(one).mode().shape == (1, 2)
        assert np.isfinite(policy.log_probs(one, policy.predict(one)))
        if not isinstance(one, (dict, tuple)):
            assert policy.values({"observation": one}) == value
    env = policy.make_env()
    own = [np.array(env.reset(seed=seed)[0]) for seed in range(7)]
    assert [policy.values(one) for one in own] == values
    assert policy.values(np.stack(own)).tolist() == pytest.approx(values, abs=1e-6)
    for count in (2, 7):
        many = batch(space, shown[:count])
        assert policy.values(many).tolist() == pytest.approx(values[:count], abs=1e-6)
        assert policy.values(shown[:count]).tolist() == pytest.approx(values[:count], abs=1e-6)
        policy.reset()
        assert policy.predict(many).shape == (count, 2)
        policy.reset()


STACKED = [
    *((name, SMALL) for name in IMAGES if name != "small"),
    ("nested", {**SMALL, "model": "lstm"}),
    ("colours", {**SMALL, "image": "color", "frame_stack": 2}),
    ("colours", {**SMALL, "frame_stack": 1}),
    ("as if preprocessed", {**SMALL, "frame_stack": 3}),
    ("as if preprocessed", {**SMALL, "frame_stack": 1, "image": "color"}),
    *((name, {"frame_stack": 3}) for name in SPACES if name != "bytes"),
    ("small", {"frame_stack": 3}),
    ("numbers", {"frame_stack": 2, "model": "lstm", "hidden_size": 8}),
]


def raw(config: Any, env: gymnasium.Env) -> gymnasium.Env:
    """Leave an environment as it is."""
    return env


@pytest.mark.slow_but_first
@pytest.mark.parametrize(("name", "values"), STACKED)
def test_what_is_shown_is_resized_and_stacked_as_in_training(
    name: str, values: dict[str, Any]
) -> None:
    policy, other = policy_of(name, **values), policy_of(name, **values)
    shows, env = policy.make_env(finish=raw), other.make_env()
    answers = set()
    for episode in range(2):
        shown, row = (each.reset(seed=episode)[0] for each in (shows, env))
        policy.reset()
        other.reset()
        for _ in range(4):
            wrapped = shown if isinstance(shown, (dict, tuple)) else {"observation": shown}
            value = policy.values(wrapped)
            assert value == pytest.approx(other.values(row), abs=1e-6)
            assert value == pytest.approx(policy.values(wrapped), abs=1e-6)
            action = policy.predict(wrapped)
            np.testing.assert_allclose(action, other.predict(row), atol=1e-6)
            answers.add(round(value, 5))
            shown, row = (each.step(action)[0] for each in (shows, env))
    assert len(answers) > 4 or name == "one state"


def test_a_game_is_seen_as_its_screen_shows_it() -> None:
    flags = {**SMALL, "num_envs": 1, "num_steps": 8, "num_minibatches": 1, "num_workers": 0}
    policy = make_components("PongNoFrameskip-v4", **flags).policy()
    screen, _ = policy.make_env(finish=raw).reset(seed=0)
    row, _ = policy.make_env().reset(seed=0)
    assert (screen.shape, row.shape) == ((210, 160), (36, 36, 4))
    assert policy.values(screen) == pytest.approx(policy.values(row), abs=1e-6)


def test_several_episodes_are_stacked_side_by_side_until_each_is_reset() -> None:
    policy = policy_of("gray", **SMALL)
    images = np.random.default_rng(0).integers(256, size=(4, 2, 60, 36), dtype=np.uint8)

    def one_by_one(*images: Any) -> Any:
        policy.reset()
        return [policy.predict(image) for image in images][-1]

    last = [one_by_one(*images[:, 0]), one_by_one(*images[3:, 1])]
    policy.reset()
    for pair in images[:3]:
        policy.predict(pair)
    policy.reset(1)  # whose episode is over
    with pytest.raises(ValueError, match=r"what 2 episodes have shown, and is given 1 .*reset\(\)"):
        policy.predict(images[3, 0])
    with pytest.raises(ValueError, match="values that uint8 has not"):
        policy.predict(images[3] / 255)
    with pytest.raises(ValueError, match="state= carries none of what was shown before"):
        policy.predict(images[3], state=policy.initial_state(2))
    np.testing.assert_allclose(policy.predict([*images[3]]), last, atol=1e-6)
    policy.reset(5)  # of which nothing is known
    policy.reset()
    assert policy.predict(images[3, 0]).shape == (2,)


def test_an_image_that_may_be_a_stack_is_refused() -> None:
    policy = policy_of("as if preprocessed", **SMALL, frame_stack=3)
    image = IMAGES["as if preprocessed"].sample()
    message = "one that the environment shows, .* or one that is preprocessed: give {'observation'"
    for given in (image, np.stack([image] * 2)):
        with pytest.raises(ValueError, match=message):
            policy.predict(given)
    assert policy.values({"observation": image}) != policy.values(image.astype(np.float32))
    with pytest.raises(ValueError, match=r"of shape \(40, 50\): give \(36, 36, 3\), or"):
        policy.predict(np.zeros((40, 50), np.uint8))


def test_states_are_told_from_a_one_hot_vector() -> None:
    policy = policy_of("states")
    one_by_one = [policy.predict(state) for state in range(16)]
    values = [policy.values(state) for state in range(16)]
    assert len({*values}) == 16
    rows = np.eye(16, dtype=np.float32)
    assert [policy.values(row) for row in rows] == values
    assert policy.values(rows.astype(np.int64)).tolist() == pytest.approx(values, abs=1e-6)
    for states in (np.arange(16), np.arange(16, dtype=np.uint8), list(range(16))):
        np.testing.assert_allclose(policy.predict(states), one_by_one, atol=1e-6)
    assert policy.values(np.zeros(16, np.int64)) == pytest.approx([values[0]] * 16, abs=1e-6)


def test_an_array_that_may_be_one_or_n_is_refused() -> None:
    for name, given in (
        ("states", np.eye(16, dtype=np.int64)[1]),
        ("states", np.eye(16, dtype=np.int64)[1].tolist()),
        ("scalar", np.float32([0.5])),
    ):
        policy = policy_of(name)
        with pytest.raises(ValueError, match=r"environment shows.*or one .*: give {'observation'"):
            policy.predict(given)
        assert policy.values({"observation": given}).shape == (len(given),)
        assert policy.values(np.array(given)[None]).shape == (1,)


def test_an_array_is_read_in_the_form_in_which_it_is_an_observation() -> None:
    policy = policy_of("one state")
    assert policy.values(np.array([4])).shape == (1,)
    assert isinstance(policy.values(np.array([1])), float)
    policy = policy_of("bits in a row")
    assert isinstance(policy.values(np.array([[0, 1, 1, 0]])), float)
    assert policy.values(np.array([[[0, 1, 1, 0]]])).shape == (1,)


REFUSED: dict[str, list[tuple[Any, str]]] = {  # by the space that is shown
    "states": [
        (16, r"the observation is outside of Discrete\(16\): 16"),
        (np.array([3, 0, 99]), r"row 2 of the observation is outside of Discrete\(16\): 99"),
        (1.5, "values that int64 has not"),
        (np.nan, "the observation is not finite"),
        (np.zeros(16), "the observation is no vector of Discrete"),
        (np.ones((2, 16)), "row 0 of the observation is no vector of Discrete"),
        (None, "is object with values that int64 has not"),
        ([[1], [2, 3]], "observation is no array of numbers"),
    ],
    "states from -2": [(3, r"outside of Discrete\(5, start=-2\): 3")],
    "choices": [
        (np.array([3, 1, -1]), r"outside of MultiDiscrete.*\[3, 1, -1\]"),
        (np.eye(9)[0], "no vector of MultiDiscrete"),
    ],
    "bits": [
        (np.array([0, 1, 2, 0]), "no vector of MultiBinary"),
        (np.array([0, 1, 256, 0]), "values that int8 has not"),
    ],
    "whole numbers": [
        (np.array([0, 2**40, 0]), "values that int32 has not"),
        ([0, np.nan, 0], "not finite"),
    ],
    "bytes": [(np.array([0, 256, 0], np.uint16), "values that uint8 has not")],
    "numbers": [
        ([0, np.nan, 0], "the observation is not finite in float32: nan"),
        ([[0, 0, 0], [0, 0, -np.inf]], "row 1 of the observation is not finite.*: -inf"),
        ([1e300, 0, 0], r"not finite in float32: 1e\+300"),
        ([1e300, -1e300, 0], "not finite in float32"),
    ],
    "half": [(np.full((4, 2, 3), 1e30), "row 0 of the observation is not finite")],
    "scalar": [([0, np.nan], "row 1 of the observation is not finite")],
    "dict": [
        ({"goal": 3, "arm": {"x": [0, 0]}}, "goal of the observation is outside of Discrete"),
        ({"goal": 1, "arm": {"x": [0, np.nan]}}, "arm.x of the observation is not finite"),
        ({"goal": [1, 1], "arm.x": [[0, 0], [0, np.inf]]}, "row 1 of arm.x of the observation"),
        (
            [{"goal": 0, "arm": {"x": [0, 0]}}, {"goal": 7, "arm": {"x": [0, 0]}}],
            "row 1 of the observations: goal of the observation is outside",
        ),
        (np.zeros(5), "goal of the observation is no vector of Discrete"),
    ],
    "tuple": [((0, 0.5), r"0 of the observation is outside of Discrete\(3, start=1\): 0")],
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_finite_or_not_in_the_space_is_refused(name: str) -> None:
    policy = policy_of(name)
    for given, message in REFUSED[name]:
        for ask in (
            policy.predict,
            policy.values,
            policy.distribution,
            lambda observation: policy.log_probs(observation, np.zeros(2)),
        ):
            with pytest.raises(ValueError, match=message):
                ask(given)


def test_large_numbers_that_are_finite_are_observations() -> None:
    policy = policy_of("numbers")
    assert np.isfinite(policy.predict(np.float64([3e38, -3e38, 3e38]))).all()


@pytest.mark.parametrize("name", ["dict", "states"])
def test_stacks_of_observations_are_checked_as_each_of_them(name: str) -> None:
    policy = policy_of(name, frame_stack=3)
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
        assert policy.predict(np.zeros(7)).shape == (7, 2)  # states that the environment shows
    else:
        with pytest.raises(ValueError, match="the last observations in one"):
            policy.predict(np.zeros(7))


def test_a_part_that_the_policy_does_not_read_may_be_anything() -> None:
    env = "examples.privileged_critic:Guess"
    config = Config(env_name=env, policy_keys="seen", **PLAIN)
    policy = Components(settings_of(config)).policy()
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
def test_what_an_agent_of_a_team_shows_is_an_observation(masks: str) -> None:
    config = Config(env_name="tests.teams:Relay", num_envs=3, env_kwargs={"masks": masks}, **PLAIN)
    policy = Components(settings_of(config)).policy()
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


@pytest.mark.parametrize(
    ("shown", "stacked"),
    [
        (identity("Tuple", "Discrete"), ()),
        ({"env_name": "Lights", **SMALL}, ["left", "arm.camera"]),
        ({"env_name": "Camera", "image": "categories", "hidden_size": 2}, []),
    ],
    ids=["Tuple", "Lights", "categories"],
)
def test_observations_may_be_nested_as_the_environment_shows_them(
    shown: dict[str, Any], stacked: list[str]
) -> None:
    policy = run_of(shown).policy()
    rows = np.stack([row for row, _ in seen_by(policy, 6)])
    nested = [observation for observation, _ in seen_by(policy, 6, finish=lambda _, env: env)]
    space: Any = policy.spaces.observations
    for name in stacked:  # images are as make_env shows them
        for row, observation in zip(rows, nested, strict=True):
            *path, key = name.split(".")
            inner = observation[path[0]] if path else observation
            inner[key] = row[space.places[name]].reshape(space.parts[name].shape)
    if policy.parts == ["observation"]:
        nested = [{"observation": one} for one in nested]
    expected = policy.values(rows)
    assert len({*expected.tolist()}) > 1
    assert [policy.values(one) for one in nested] == pytest.approx(expected.tolist(), abs=1e-6)
    together = joined(nested)
    assert policy.values(together).tolist() == expected.tolist()
    assert policy.predict(together) == policy.predict(rows)


def joined(observations: list[Any]) -> Any:
    """Return n nested observations as one of arrays (n, ...)."""
    first = observations[0]
    if isinstance(first, dict):
        return {key: joined([each[key] for each in observations]) for key in first}
    if isinstance(first, tuple):
        return tuple(joined([*parts]) for parts in zip(*observations, strict=True))
    return np.stack(observations)
