"""ONNX files in onnxruntime against the policies that were exported."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

import main
from ppo import Config, load_policy, train
from ppo.extras.tools.export import export
from ppo.models.observation_parts import split

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
    types = {one.name: one.type for one in session.get_inputs()}
    policy = load_policy(checkpoint, env_name, precision="float32")
    env = policy.make_env()
    state = np.zeros_like(policy.state)
    observation, _ = env.reset(seed=5)
    for _ in range(60):
        space = policy.spaces.observations
        parts = split(space, torch.from_numpy(observation[None]))
        inputs = {part: tensor.numpy() for part, tensor in parts.items()}
        for part in inputs.keys() & {x for x, kind in types.items() if "double" in kind}:
            inputs[part] = inputs[part].astype(np.float64)  # as the environment shows it
        if state.size:
            inputs["state"] = state
        found = session.run(None, inputs)
        action = policy.predict(observation)
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
            observation, _ = env.reset()
            state = np.zeros_like(state)


@pytest.mark.slow
def test_a_file_returns_nan_for_nan_and_some_action_for_what_is_infinite(tmp_path: Path) -> None:
    kwargs = {"shown": "Dict", "done": "Dict"}
    world = {"env_name": "tests.environments:Identity-v0", "env_kwargs": kwargs}
    checkpoint = trained({**world, "model": "lstm"}, tmp_path / "run")
    policy = load_policy(checkpoint, world["env_name"], precision="float32")
    export(policy, tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "policy.onnx"))
    choices = np.eye(2)[[0, 1, 0]]
    rows = {"a": choices, "b": np.full((3, 1), 0.5), "c": choices}
    rows["state"] = policy.initial_state(3)
    expected = session.run(None, rows)
    for wrong in (np.nan, np.inf, -np.inf):
        found = session.run(None, {**rows, "b": np.array([[0.5], [wrong], [0.5]])})
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
