"""Policies that are loaded from checkpoints: what they do, and which files are refused."""

import math
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

import ppo
from ppo import Config, Policy, RunSummary, load_policy, train
from ppo.envs.seeding import Stream, integer_seed
from ppo.errors import CheckpointError, PPOError
from ppo.run import checkpoint
from tests.environments import SPACES
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
    return train(
        Config(
            **{
                **CARTPOLE,
                "model": request.param,
                "num_minibatches": 2,
                "run_dir": str(folder / "run"),
            }
        )
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the checkpoint of an MLP."""
    folder = tmp_path_factory.mktemp("saved") / "run"
    return Path(
        train(
            Config(**iterations(4, run_dir=str(folder), num_epochs=4, learning_rate=3e-3))
        ).checkpoint
    )


def test_a_loaded_policy_plays_like_the_trained_one(trained: RunSummary) -> None:
    evaluation = trained.evaluation
    assert len(set(evaluation.returns)) > 1
    assert load_policy(trained.checkpoint).evaluate(6, num_envs=4) == evaluation
    assert (
        load_policy(Path(trained.checkpoint)).evaluate(4, num_envs=3).returns
        == evaluation.returns[:4]
    )
    assert (
        load_policy(trained.checkpoint).evaluate(6, deterministic=False).returns
        != evaluation.returns
    )


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


def test_random_actions_may_be_drawn_by_a_generator_of_your_own(saved: Path) -> None:
    policy = load_policy(saved)
    states = np.zeros((len(OBSERVATIONS), 0), np.float32)
    infos = [{}] * len(OBSERVATIONS)
    own = policy.generator.bit_generator.state
    actions = [
        policy.act(OBSERVATIONS, infos, states, False, np.random.default_rng(seed))
        for seed in (1, 1, 2)
    ]
    assert policy.generator.bit_generator.state == own
    assert actions[0] == actions[1] != actions[2]


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


@pytest.mark.parametrize(
    ("shown", "done", "values"),
    [
        *(("Box", done, {}) for done in SPACES),
        *((shown, "Discrete", {}) for shown in ("Dict", "Tuple", "Grid")),
        ("Discrete", "Box", {"use_sde": True, "squash_actions": True}),
    ],
)
def test_predictions_are_actions_of_the_environment(
    shown: str, done: str, values: dict[str, Any], tmp_path: Path
) -> None:
    world = {
        "env_name": "tests.environments:Identity-v0",
        "env_kwargs": {"shown": shown, "done": done},
    }
    summary = train(Config(**{**iterations(1), **world, **values, "run_dir": str(tmp_path)}))
    policy = load_policy(summary.checkpoint, env_name=world["env_name"])
    env = policy.make_env()
    observation, _ = env.reset(seed=0)
    for deterministic in (True, False):
        for _ in range(5):
            action = policy.predict(observation, deterministic)
            assert SPACES[done].contains(action)
            observation = env.step(action)[0]


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


@pytest.mark.parametrize(
    ("env_name", "values"),
    [
        ("CartPole-v1", {"share_trunk": True}),
        (
            "Pendulum-v1",
            {"use_sde": True, "squash_actions": True, "num_layers": 1, "activation": "relu"},
        ),
        ("tests.environments:Picture-v0", {"model": "cnn_small", "screen_size": 36}),
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
    summary = train(
        Config(
            **{
                **iterations(2),
                "env_name": env_name,
                "eval_episodes": 5,
                **values,
                "run_dir": str(tmp_path),
            }
        )
    )
    policy = load_policy(summary.checkpoint, env_name=env_name)
    assert policy.evaluate(5, num_envs=2) == summary.evaluation


@pytest.mark.parametrize(
    "damage",
    [
        *(
            pytest.param(lambda data, n=n: data[: n * len(data) // 10], id=f"{n}-tenths-of-it")
            for n in range(1, 10)
        ),
        pytest.param(lambda data: data[:-1], id="all-but-a-byte"),
        pytest.param(lambda data: data + b"\0", id="a-byte-more"),
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: b"PK" + bytes(1000), id="something-else"),
        pytest.param(lambda data: b'{"model": []}', id="json"),
        pytest.param(lambda data: safetensors.torch.save({"a": torch.zeros(2)}), id="tensors-only"),
        pytest.param(
            lambda data: safetensors.torch.save({"a": torch.zeros(2)}, {"state": "{}"}),
            id="unsealed",
        ),
        pytest.param(
            lambda data: safetensors.torch.save({"a": torch.zeros(2)}, {"state": "[]"}),
            id="no-mapping",
        ),
    ],
)
def test_a_damaged_checkpoint_is_refused(
    saved: Path, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "damaged.safetensors"
    path.write_bytes(damage(saved.read_bytes()))
    with pytest.raises(CheckpointError, match=r"damaged\.safetensors"):
        load_policy(path)


def test_a_flipped_bit_anywhere_is_noticed(saved: Path, tmp_path: Path) -> None:
    content, random = saved.read_bytes(), np.random.default_rng(0)
    path = tmp_path / "damaged.safetensors"
    header = 8 + int.from_bytes(content[:8], "little")
    places = [
        *range(8),
        *random.integers(8, header, 150),
        *random.integers(header, len(content), 50),
        len(content) - 1,
    ]
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(random.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="damaged"):
            checkpoint.load(path)
    with pytest.raises(CheckpointError, match="damaged"):
        load_policy(path)
    path.write_bytes(content)
    load_policy(path)


def test_a_missing_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot read checkpoint"):
        load_policy(tmp_path / "none.safetensors")
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        load_policy(tmp_path)


@pytest.mark.parametrize(
    "change", [{"hidden_size": 32}, {"frame_stack": 2}, {"num_layers": 3}], ids=str
)
def test_a_checkpoint_of_another_network_or_environment_is_refused(
    saved: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    state = checkpoint.load(saved)
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


def test_a_run_is_loaded_from_its_folder(tmp_path: Path) -> None:
    saved = train(Config(**iterations(1, run_dir=str(tmp_path / "run")))).checkpoint
    found = load_policy(tmp_path / "run")
    np.testing.assert_array_equal(found.weights, load_policy(saved).weights)
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be read"):
        load_policy(tmp_path)


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


def test_the_example_environment_trains_as_it_says(tmp_path: Path) -> None:
    name = "examples.own_environment:HiddenVelocity"
    summary = train(Config(**iterations(2, env_name=name, model="lstm", run_dir=str(tmp_path))))
    env = load_policy(summary.checkpoint, env_name=name).make_env()
    whole = env.unwrapped.state
    assert whole is None
    observation = env.reset(seed=0)[0]
    np.testing.assert_allclose(observation, np.asarray(env.unwrapped.state)[[0, 2]], rtol=1e-6)


def test_names_of_the_package_are_imported_on_first_use() -> None:
    assert ppo.Policy is sys.modules["ppo.policy.policy"].Policy
    with pytest.raises(AttributeError, match="module 'ppo' has no attribute 'nothing'"):
        _ = ppo.nothing
