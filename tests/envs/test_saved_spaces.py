"""Spaces in the files of policies, which are loaded without making an environment."""

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from ppo import Config, load_policy, train
from ppo.envs.errors import EnvironmentUnavailable
from ppo.envs.probe import Spaces
from ppo.envs.saved_spaces import read_spaces, save_spaces
from ppo.errors import CheckpointError
from ppo.extras.vector.evaluation import columns_for
from ppo.run import checkpoint
from tests.envs.test_spaces import BOXES, CASTING, CHOICES, HALF_OPEN, INTEGERS, nested
from tests.running import TINY, Call, environment_flags, spaces_of

ARM = "tests.envs.test_saved_spaces:Arm"
IMAGES = st.sampled_from(
    [spaces.Box(0, 255, (60, 80, 3), np.uint8), spaces.Box(0, 10, (7, 7, 3), np.uint8)]
)
RUN = {**TINY, "env_name": ARM, "total_steps": 2 * TINY["num_envs"] * TINY["num_steps"]}


class Arm(gymnasium.Env):
    """Counts how often it is made; num_joints are observed and moved."""

    made = 0

    def __init__(self, num_joints: int = 2) -> None:
        Arm.made += 1
        self.observation_space = spaces.Dict(
            {"joints": spaces.Box(-1, 1, (num_joints,)), "goal": spaces.Discrete(3)}
        )
        self.action_space = spaces.Box(-1, 1, (num_joints,))

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.steps += 1
        return self.observation_space.sample(), float(action[0]), self.steps == 5, False, {}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the checkpoint of a run on Arm."""
    return Path(train(Config(**RUN, run_dir=str(tmp_path_factory.mktemp("arm")))).checkpoint)


@CASTING
@settings(deadline=None, max_examples=40)
@given(
    nested(CHOICES | BOXES | HALF_OPEN | INTEGERS | IMAGES),
    nested(CHOICES | BOXES | INTEGERS),
    st.sampled_from(["single", "batch", "team"]),
)
def test_spaces_are_read_as_they_were(shown: Any, actions: Any, form: Any) -> None:
    before = Spaces(spaces.Box(0, 1), actions, True, form=form, team_size=3, shown=shown)
    written = save_spaces(before)
    found = read_spaces(json.loads(json.dumps(written)), environment_flags("any", screen_size=36))
    assert (found.shown, found.actions) == (shown, actions)
    assert (found.has_masks, found.form, found.team_size) == (True, form, 3)
    assert save_spaces(found) == written


def test_spaces_of_large_images_are_read() -> None:
    shown = spaces.Box(0, 255, (2160, 3840, 3), np.uint8)
    before = Spaces(spaces.Box(0, 1), spaces.Discrete(2), False, shown=shown)
    assert read_spaces(save_spaces(before), environment_flags("any")).shown == shown


@pytest.mark.parametrize(
    ("env_name", "flags"),
    [
        ("Pendulum-v1", {"frame_stack": 3}),
        ("PongNoFrameskip-v4", {"screen_size": 42, "frame_stack": 2, "image": "color"}),
        ("tests.environments:Lights", {}),  # with a text, which is left out
        ("tests.environments:Masked-v0", {}),
        ("tests.teams:Relay", {}),
        ("tests.teams:sync", {}),
    ],
)
def test_observations_are_preprocessed_as_where_the_environment_is_made(
    env_name: str, flags: dict[str, Any]
) -> None:
    before = spaces_of(env_name, **flags)
    found = read_spaces(save_spaces(before), environment_flags(env_name, **flags))
    assert found == before._replace(
        warnings=(), reward_threshold=None, has_absent=False, shown=found.shown
    )
    for name in ("parts", "places", "treatment"):
        assert getattr(found.observations, name, None) == getattr(before.observations, name, None)
    assert found.is_like(before)


def test_a_policy_is_loaded_without_making_its_environment(saved: Path, tmp_path: Path) -> None:
    made = Arm.made
    policy = load_policy(saved, ARM)
    policy.save(tmp_path / "own.safetensors")
    own = load_policy(tmp_path / "own.safetensors")
    observation = {"joints": np.ones(2, np.float32), "goal": 2}
    np.testing.assert_array_equal(own.predict(observation), policy.predict(observation))
    assert Arm.made == made
    assert policy.evaluate(2).returns == load_policy(saved, Arm).evaluate(2).returns
    assert Arm.made == made + 2


def test_what_is_not_repeated_is_no_environment_to_make(saved: Path, call: Call) -> None:
    made = Arm.made
    policy = load_policy(saved)
    assert policy.predict({"joints": np.zeros(2), "goal": 0}).shape == (2,)
    for use in (policy.make_env, policy.evaluate, lambda: columns_for(policy, [0])):
        with pytest.raises(CheckpointError, match=f"if you trust it, repeat --env_name={ARM}$"):
            use()
    status, _, error = call("evaluate", str(saved), "--episodes=1")
    assert status == CheckpointError.exit_code
    assert f"would import {ARM}" in error
    assert Arm.made == made


def test_an_environment_that_has_changed_since_is_not_played(saved: Path) -> None:
    policy = load_policy(saved, ARM, env_kwargs={"num_joints": 3})
    with pytest.raises(
        EnvironmentUnavailable, match=r"Arm observes .* but the policy was trained with"
    ):
        policy.evaluate()
    observation = policy.make_env().reset()[0]
    with pytest.raises(ValueError, match=r"observation is of shape \(6,\): give \(5,\)"):
        policy.predict(observation)
    with pytest.raises(
        EnvironmentUnavailable, match=r"tests.teams:sync observes .* give that environment"
    ):
        load_policy(saved, ARM, eval_env="tests.teams:sync").evaluate()


def test_a_file_without_spaces_is_refused(saved: Path, tmp_path: Path) -> None:
    state = checkpoint.load(saved)
    del state["spaces"]
    checkpoint.save(tmp_path / "old.safetensors", state)
    with pytest.raises(CheckpointError, match="it has no spaces, as files of development versions"):
        load_policy(tmp_path / "old.safetensors", ARM)


BOX = {"kind": "Box", "shape": [2], "dtype": "float32", "low": -1.0, "high": 1.0}


def test_spaces_of_a_stranger_are_read_or_refused_in_a_sentence(
    saved: Path, tmp_path: Path
) -> None:
    state = checkpoint.load(saved)
    path = tmp_path / "strange.safetensors"
    for part, value in (
        ("shown", None),
        ("shown", {"kind": "Box"}),
        ("shown", {"kind": "Graph"}),
        ("shown", {**BOX, "shape": [2**13, 2**13]}),
        ("shown", {**BOX, "shape": [-2]}),
        ("shown", {**BOX, "shape": [2.0]}),
        ("shown", {**BOX, "low": [[-1.0], -1.0]}),
        ("shown", {**BOX, "low": 2.0}),
        ("shown", {**BOX, "low": float("nan")}),
        ("shown", {**BOX, "dtype": "O"}),
        ("shown", {**BOX, "shape": [3]}),
        ("shown", {"kind": "left out"}),
        ("shown", {"kind": "Dict", "parts": [[["joints"], BOX]]}),
        ("shown", {"kind": "Tuple", "parts": 3}),
        ("actions", {"kind": "Discrete", "n": 2**25, "start": 0}),
        ("actions", {"kind": "Discrete", "n": 2, "start": "0"}),
        ("actions", {"kind": "MultiBinary", "n": [2**20, 2**20]}),
        ("actions", {"kind": "MultiDiscrete", "nvec": [], "start": [], "dtype": "int64"}),
        ("team_size", "3"),
    ):
        checkpoint.save(path, {**state, "spaces": {**state["spaces"], part: value}})
        with pytest.raises(
            CheckpointError, match=r"is of another network or environment \(|cannot be used: "
        ):
            load_policy(path)
    checkpoint.save(path, {**state, "spaces": []})
    with pytest.raises(CheckpointError, match="its spaces are damaged"):
        load_policy(path)
