"""ONNX files in onnxruntime against the policies that were exported."""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnxruntime
import pytest
from gymnasium.spaces import Box, Discrete

import main
from ppo import Config, load_policy, train
from ppo.extras.tools.export import export
from ppo.extras.tools.exported_policy import describe_space
from tests.extras.raw_observations.test_reader import raw
from tests.running import Call

SIZES = {
    "num_envs": 2,
    "num_steps": 16,
    "num_minibatches": 1,
    "num_epochs": 2,
    "num_workers": 0,
    "total_steps": 64,
}
QUIET = {"eval_episodes": 0, "verbose": 0, "report": False}
PICTURE = {"env_name": "tests.environments:Picture-v0", "screen_size": 36}
SHOWS = "tests.shown:Shows"
RUNS: dict[str, dict[str, Any]] = {
    "mlp": {"env_name": "CartPole-v1", "learning_rate": 1e-2},
    "squashed": {"env_name": "Pendulum-v1", "squash_actions": True, "use_sde": True},
    "batch": {"env_name": "tests.teams:sync", "learning_rate": 1e-2},
    "lstm": {"env_name": "CartPole-v1", "model": "lstm", "learning_rate": 1e-2},
    "impala": {**PICTURE, "model": "impala", "precision": "bfloat16"},
    "images and vectors": {
        **PICTURE,
        "env_name": "tests.environments:Camera",
        "model": "lstm",
        "normalize_keys": "distance",
    },
    "both": {
        "env_name": "tests.environments:Identity-v0",
        "env_kwargs": {"shown": "Dict", "done": "Tuple"},
    },
    "states": {"env_name": SHOWS, "env_kwargs": {"name": "states from -2"}},
    "choices": {"env_name": SHOWS, "env_kwargs": {"name": "grid of choices"}, "frame_stack": 2},
    "numbers": {"env_name": SHOWS, "env_kwargs": {"name": "half"}, "frame_stack": 3},
    "a few of all": {"env_name": SHOWS, "env_kwargs": {"name": "mixed"}, "frame_stack": 2},
}


def trained(values: dict[str, Any], folder: Path) -> Path:
    """Train a short run; return its checkpoint."""
    return Path(train(Config(**{**SIZES, **QUIET, **values, "run_dir": str(folder)})).checkpoint)


def leaves(action: Any) -> list[np.ndarray]:
    """Return the parts of an action."""
    if isinstance(action, dict):
        action = tuple(action.values())
    if isinstance(action, tuple):
        return [leaf for part in action for leaf in leaves(part)]
    return [np.asarray(action)]


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name", RUNS)
def test_an_exported_policy_acts_as_the_original(name: str, tmp_path: Path) -> None:
    checkpoint = trained(RUNS[name], tmp_path / "run")
    path = tmp_path / "policy.onnx"
    env_name = RUNS[name]["env_name"]
    assert main.main(["export", str(checkpoint), str(path), f"--env_name={env_name}"]) == 0
    session = onnxruntime.InferenceSession(str(path))
    assert {one.shape[0] for one in session.get_inputs()} == {"batch"}
    about = session.get_modelmeta().custom_metadata_map
    assert about["environment"] == env_name
    policy = load_policy(checkpoint, env_name, precision="float32")
    env = policy.make_env(finish=raw)
    state = np.zeros_like(policy.state)
    observation, _ = env.reset(seed=5)
    seen: dict[str, Any] = {}
    for _ in range(60):
        inputs = {
            name: inputs_of(name, part, observation, seen)
            for name, part in json.loads(about["inputs"]).items()
        }
        if state.size:
            inputs["state"] = state
        found = session.run(None, inputs)
        is_nested = isinstance(observation, (dict, tuple))
        action = policy.predict(observation if is_nested else {"observation": observation})
        if state.size:
            state = found.pop()
            np.testing.assert_allclose(state, policy.state, atol=1e-5)
        for one, other in zip(found, leaves(action), strict=True):
            assert one.shape == (1, *other.shape)
            assert one.dtype.kind == other.dtype.kind
            np.testing.assert_allclose(one[0], other, atol=1e-5)
        observation, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            policy.reset()
            seen.clear()
            observation, _ = env.reset()
            state = np.zeros_like(state)


def inputs_of(name: str, about: dict[str, Any], observation: Any, seen: dict[str, Any]) -> Any:
    """Return an input of a file, by what it says of itself. seen: what was stacked before."""
    if name != "observation":
        for key in name.split("."):
            observation = observation[int(key) if isinstance(observation, tuple) else key]
    one = np.asarray(observation, about["dtype"])
    if "preprocessing" in about:
        assert about["preprocessing"].startswith(
            "gray = 0.299 R + 0.587 G + 0.114 B as cv2.COLOR_RGB2GRAY, resized to 36 x 36 as by "
            "cv2.INTER_AREA; the last 4, the oldest first, in the last dimension"
        )
        gray = cv2.cvtColor(one, cv2.COLOR_RGB2GRAY)
        one = cv2.resize(gray, (36, 36), interpolation=cv2.INTER_AREA)
        seen[name] = [*seen.get(name, [one] * 4)[1:], one]
        return np.stack(seen[name], -1)[None]
    if "stacked" in about:
        seen[name] = [*seen.get(name, [one] * about["stacked"])[1:], one]
        one = np.stack(seen[name])
    return one[None]


@pytest.mark.slow
def test_a_file_says_what_it_takes_and_gives(tmp_path: Path, call: Call) -> None:
    rescaled = "gymnasium.wrappers:RescaleAction(min_action=-1, max_action=1)"
    values = {"env_name": "Pendulum-v1", "wrapper": [rescaled], "env_kwargs": {"g": 9.81}}
    path = tmp_path / "policy.onnx"
    code, out, _ = call("export", str(trained(values, tmp_path / "run")), str(path))
    assert code == 0
    assert f"note: no part of the policy: --wrapper={rescaled}; predict and" in out
    found = onnxruntime.InferenceSession(str(path)).get_modelmeta().custom_metadata_map
    assert found["environment"] == "Pendulum-v1"
    assert found["version"] == f"ppo-trainer {version('ppo-trainer')}"
    assert (json.loads(found["env_kwargs"]), found["wrappers"]) == ({"g": 9.81}, rescaled)
    box = {"space": "Box", "shape": [1], "low": -1.0, "high": 1.0}
    assert json.loads(found["outputs"]) == {"action": box}
    (shown,) = json.loads(found["inputs"]).values()
    assert shown["dtype"] == "float32"
    assert shown["shown"] == {**box, "shape": [3], "low": [-1, -1, -8], "high": [1, 1, 8]}
    assert describe_space(Box(np.float32([0, -np.inf]), np.float32([1, 5])))["low"] == [0, None]
    choices = {"space": "Discrete", "shape": [], "choices": 3, "start": 2}
    assert describe_space(Discrete(3, start=2)) == choices


@pytest.mark.slow
def test_a_file_returns_nan_for_nan_and_some_action_for_what_is_infinite(tmp_path: Path) -> None:
    kwargs = {"shown": "Dict", "done": "Dict"}
    world = {"env_name": "tests.environments:Identity-v0", "env_kwargs": kwargs}
    checkpoint = trained({**world, "model": "lstm"}, tmp_path / "run")
    policy = load_policy(checkpoint, world["env_name"], precision="float32")
    export(policy, tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "policy.onnx"))
    numbers = np.full((3, 1), 0.5, np.float32)
    rows = {"a": np.array([0, 1, 0]), "b": numbers, "c": np.zeros((3, 2), np.int8)}
    rows["state"] = policy.initial_state(3)
    expected = session.run(None, rows)
    for wrong in (np.nan, np.inf, -np.inf):
        found = session.run(None, {**rows, "b": np.float32([[0.5], [wrong], [0.5]])})
        for one, other in zip(found, expected, strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            np.testing.assert_allclose(one[[0, 2]], other[[0, 2]], atol=1e-6)
        if np.isnan(wrong):
            assert np.isnan(found[1][1]).all()
            assert all(np.isnan(state[1]).any() for state in found[3:])
        with pytest.raises(ValueError, match="row 1 of b of the observation is not finite"):
            policy.predict({"a": [0, 1, 0], "b": [[0.5], [wrong], [0.5]], "c": np.zeros((3, 2))})


def test_a_file_name_that_cannot_be_used_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    checkpoint = trained(RUNS["mlp"], tmp_path / "run")
    (tmp_path / "taken.onnx").write_text("mine")
    for arguments, said in (
        ([str(checkpoint)], "the following arguments are required: OUTPUT"),
        ([str(checkpoint), "policy.pt"], "policy.pt: give a name that ends with .onnx"),
        (
            [str(checkpoint), str(tmp_path / "taken.onnx")],
            "taken.onnx is there already, and nothing is overwritten",
        ),
    ):
        assert main.main(["export", *arguments]) == 2
        err = capsys.readouterr().err
        assert said in err
        assert err.count("\n") == 1
    assert (tmp_path / "taken.onnx").read_text() == "mine"


def test_a_policy_with_action_masks_is_not_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    name = "tests.environments:Masked-v0"
    checkpoint = trained({"env_name": name}, tmp_path / "run")
    assert (
        main.main(["export", str(checkpoint), str(tmp_path / "policy.onnx"), f"--env_name={name}"])
        == 2
    )
    assert "which actions are allowed, which an ONNX file is not" in capsys.readouterr().err


@pytest.mark.slow
def test_a_file_that_acts_differently_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = trained(RUNS["squashed"], tmp_path / "run")
    run = onnxruntime.InferenceSession.run
    monkeypatch.setattr(
        onnxruntime.InferenceSession, "run", lambda *given: [x + 2e-5 for x in run(*given)]
    )
    assert main.main(["export", str(checkpoint), str(tmp_path / "policy.onnx")]) == 1
    assert not list(tmp_path.glob("*.onnx"))
    assert not list(tmp_path.glob(".tmp-*"))
