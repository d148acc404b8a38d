"""Policies that are loaded from checkpoints: what they do, and which files are refused."""

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ppo import Config, Policy, RunSummary, load_policy, train
from ppo.envs.seeding import Stream, integer_seed
from ppo.errors import CheckpointError, PPOError
from ppo.run import checkpoint
from tests.running import CARTPOLE, TINY

OBSERVATIONS = np.random.default_rng(0).normal(0, [1, 1, 0.1, 1], (200, 4)).astype(np.float32)


def iterations(count: int, **values: Any) -> dict[str, Any]:
    """Return settings of a run of so many tiny iterations."""
    sizes = {**TINY, **values}
    return {**sizes, "total_steps": count * sizes["num_envs"] * sizes["num_steps"]}


@pytest.fixture(scope="module", params=["mlp", "lstm"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunSummary:
    """Train a short run; return its summary."""
    folder = tmp_path_factory.mktemp(request.param)
    flags = {**CARTPOLE, "model": request.param, "num_minibatches": 2}
    return train(Config(**{**flags, "run_dir": str(folder / "run")}))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the checkpoint of an MLP."""
    folder = tmp_path_factory.mktemp("saved") / "run"
    flags = iterations(4, run_dir=str(folder), num_epochs=4, learning_rate=3e-3)
    return Path(train(Config(**flags)).checkpoint)


def test_a_loaded_policy_plays_like_the_trained_one(trained: RunSummary) -> None:
    evaluation = trained.evaluation
    assert len(set(evaluation.returns)) > 1
    assert load_policy(trained.checkpoint).evaluate(6, num_envs=4) == evaluation
    policy = load_policy(Path(trained.checkpoint))
    assert policy.evaluate(4, num_envs=3).returns == evaluation.returns[:4]
    assert policy.evaluate(6, deterministic=False).returns != evaluation.returns


def test_a_policy_has_the_settings_that_it_was_trained_with(saved: Path) -> None:
    policy = load_policy(saved)
    assert (policy.config.learning_rate, policy.config.num_epochs) == (3e-3, 4)
    assert repr(policy) == "Policy('CartPole-v1', 'mlp')"


def test_a_policy_saved_by_itself_is_the_same(trained: RunSummary, tmp_path: Path) -> None:
    whole = load_policy(trained.checkpoint)
    whole.env_attributes["length"] = 1.0
    whole.save(tmp_path / "policies" / "own.safetensors")
    pickle.loads(pickle.dumps(whole)).save(tmp_path / "copy.safetensors")
    state = checkpoint.load(Path(trained.checkpoint))
    for path in (tmp_path / "policies" / "own.safetensors", tmp_path / "copy.safetensors"):
        assert path.stat().st_size < Path(trained.checkpoint).stat().st_size / 2
        own = checkpoint.load(path)
        wanted = [x for x in state if x.startswith(("model.", "normalize_observation."))]
        assert {*wanted, "config", "spaces", "env_attributes"} == own.keys()
        assert all(torch.equal(own[name], state[name]) for name in wanted)
        loaded = load_policy(path)
        assert loaded.env_attributes == {"length": 1.0}
        assert np.array_equal(loaded.weights, whole.weights)
        loaded.env_attributes.clear()
        assert loaded.evaluate(6, num_envs=4) == trained.evaluation


def test_a_new_run_begins_with_a_policy_saved_by_itself(saved: Path, tmp_path: Path) -> None:
    policy = load_policy(saved)
    policy.save(tmp_path / "policy.safetensors")
    run_dir = str(tmp_path / "run")
    flags = iterations(1, init_from=str(tmp_path / "policy.safetensors"), run_dir=run_dir)
    begun = load_policy(train(Config(**{**flags, "learning_rate": 1e-12})).checkpoint)
    assert np.allclose(begun.weights, policy.weights, atol=1e-9)


def test_a_policy_saved_by_itself_is_no_run_to_resume(saved: Path, tmp_path: Path) -> None:
    load_policy(saved).save(tmp_path / "run" / "checkpoints" / f"{64:012d}.safetensors")
    with pytest.raises(CheckpointError, match=r"next.observations is missing.*: give another"):
        train("CartPole-v1", resume=str(tmp_path / "run"))


def test_predictions_repeat_the_evaluation(trained: RunSummary) -> None:
    policy = load_policy(trained.checkpoint)
    assert isinstance(policy, Policy)
    env, returns = policy.make_env(), []
    for episode in range(6):
        policy.reset()
        observation, info = env.reset(seed=integer_seed(0, Stream.EVALUATION, episode))
        total, ended = 0.0, False
        while not ended:
            observation, reward, terminated, truncated, info = env.step(
                policy.predict(observation, info=info)
            )
            total, ended = total + float(reward), terminated or truncated
        returns.append(total)
    assert returns == trained.evaluation.returns


def probabilities(path: Path, observations: np.ndarray) -> np.ndarray:
    """Compute those of the actions (n, 2) from the arrays in a checkpoint alone."""
    state = checkpoint.load(path).items()
    tensors = {name: x.double().numpy() for name, x in state if isinstance(x, torch.Tensor)}
    mean, variance = (tensors[f"normalize_observation.{name}"] for name in ("mean", "variance"))
    features = np.clip((observations - mean) / np.sqrt(variance + 1e-8), -10, 10)
    for layer in range(2):
        weight, bias = (
            tensors[f"model.policy_trunk.layers.{layer}.{name}"] for name in ("weight", "bias")
        )
        features = np.tanh(features @ weight.T + bias)
    logits = (
        features @ tensors["model.policy_head.logits.weight"].T
        + tensors["model.policy_head.logits.bias"]
    )
    return np.exp(logits) / np.exp(logits).sum(1, keepdims=True)


def test_the_most_likely_action_is_predicted(saved: Path) -> None:
    policy, likely = load_policy(saved), probabilities(saved, OBSERVATIONS).argmax(1)
    (name,) = policy.parts
    assert [policy.predict({name: x}) for x in OBSERVATIONS] == likely.tolist()
    assert [policy.predict(observation) for observation in OBSERVATIONS] == likely.tolist()
    assert 20 < likely.sum() < 180


def test_random_predictions_have_the_probabilities_of_the_policy(saved: Path) -> None:
    policy, expected = load_policy(saved), probabilities(saved, OBSERVATIONS)[:, 1]
    chosen = np.abs(expected - 0.25).argmin()
    observation, probability = OBSERVATIONS[chosen], expected[chosen]
    assert 0.1 < probability < 0.4
    count = sum(policy.predict(observation, deterministic=False) for _ in range(2000))
    assert abs(count - 2000 * probability) < 4 * math.sqrt(2000 * probability * (1 - probability))


def test_reset_clears_the_state_of_a_recurrent_policy(tmp_path: Path) -> None:
    policy = load_policy(
        train(Config(**iterations(2, model="lstm", run_dir=str(tmp_path)))).checkpoint
    )

    def remembered() -> list[bytes]:
        result = []
        for observation in OBSERVATIONS[:5]:
            policy.predict(observation)
            result.append(policy.state.tobytes())
        return result

    first, second = remembered(), remembered()
    policy.reset()
    assert not policy.state.any()
    assert remembered() == first
    assert all(a != b for a, b in zip(first, second, strict=True))


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("env_name", "values"),
    [
        (
            "Pendulum-v1",
            {"use_sde": True, "squash_actions": True, "num_layers": 1, "activation": "relu"},
        ),
        (
            "tests.environments:Camera",
            {"model": "impala", "screen_size": 20, "frame_stack": 2, "share_trunk": False},
        ),
        (
            "tests.environments:Camera",
            {"model": "lstm", "screen_size": 36, "hidden_size": 8, "precision": "float32"},
        ),
    ],
)
def test_every_kind_of_network_is_loaded_as_it_was(
    env_name: str, values: dict[str, Any], tmp_path: Path
) -> None:
    flags = {**iterations(2), "env_name": env_name, "eval_episodes": 5, "run_dir": str(tmp_path)}
    summary = train(Config(**{**flags, **values}))
    policy = load_policy(summary.checkpoint, env_name=env_name)
    assert policy.evaluate(5, num_envs=2) == summary.evaluation


def test_a_missing_or_damaged_checkpoint_is_refused(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "half.safetensors").write_bytes(saved.read_bytes()[:2000])
    with pytest.raises(CheckpointError, match=r"half\.safetensors: Error while"):
        load_policy(tmp_path / "half.safetensors")
    with pytest.raises(CheckpointError, match="cannot read checkpoint"):
        load_policy(tmp_path / "none.safetensors")
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        load_policy(tmp_path)


def test_a_checkpoint_of_another_network_or_environment_is_refused(
    saved: Path, tmp_path: Path
) -> None:
    state = checkpoint.load(saved)
    for change in ({"hidden_size": 32}, {"frame_stack": 2}, {"num_layers": 3}):
        checkpoint.save(tmp_path / "other", {**state, "config": {**state["config"], **change}})
        with pytest.raises(CheckpointError, match="is of another network or environment"):
            load_policy(tmp_path / "other")


@pytest.mark.parametrize(
    ("name", "path"),
    [("env_name", "tests.environments:Bandit-v0"), ("model", "tests.models.test_own_model:Own")],
)
def test_an_import_path_in_a_checkpoint_must_be_repeated(
    name: str, path: str, tmp_path: Path
) -> None:
    saved = train(Config(**{**iterations(2), name: path, "run_dir": str(tmp_path)})).checkpoint
    for given in ({}, {name: path + "0"}, {"env_name": "CartPole-v1"}, {"model": "mlp"}):
        with pytest.raises(
            CheckpointError, match=f"would import {path}: if you trust it, repeat --{name}={path}"
        ):
            load_policy(saved, **given).make_env()
    policy = load_policy(saved, **{name: path})
    env = policy.make_env()
    assert env.action_space.contains(policy.predict(env.reset(seed=0)[0]))


@pytest.mark.parametrize("name", ["env_name", "model"])
def test_an_import_path_that_is_not_repeated_is_not_imported(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "untrusted.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(tmp_path)
    state = checkpoint.load(saved)
    config = {**state["config"], name: "untrusted:Thing"}
    checkpoint.save(tmp_path / "other", {**state, "config": config})
    with pytest.raises(CheckpointError, match="would import untrusted:Thing"):
        load_policy(tmp_path / "other").make_env()
    with pytest.raises((SystemExit, PPOError)):
        load_policy(tmp_path / "other", **{name: "untrusted:Thing"}).make_env()
