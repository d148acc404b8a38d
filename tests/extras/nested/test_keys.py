"""Parts of observations that policy and value read, chosen by their keys."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from ppo import load_policy, train
from ppo.extras.fast.mlp import NumpyActor
from ppo.models.observation_parts import split
from tests.environments import Identity
from tests.envs.test_observations import THREE
from tests.extras.fast.test_numpy_learner import assert_same_gradient, make_batch
from tests.policy.test_predict import identity
from tests.running import PLAIN, Call, make_components, metrics

NUMBERS = identity("Dict", "Discrete")  # of parts a (2,), b (1,) and c (2,)
OTHERS = {"policy_keys": "c,a", "value_keys": "b"}


def model_of(**flags: Any) -> Any:
    """Return the network of a run in NUMBERS."""
    return make_components(**NUMBERS, **flags).model


def test_a_trunk_reads_the_columns_of_its_parts() -> None:
    model = model_of(**OTHERS)
    whole = torch.randn(9, 5)
    policy, value = model.policy_trunk, model.value_trunk
    assert (model.policy_parts, value.parts) == (("a", "c"), ("b",))
    assert torch.equal(policy(whole), policy.trunk(whole[:, [0, 1, 3, 4]]))
    assert torch.equal(value(whole), value.trunk(whole[:, 2:3]))
    assert torch.equal(policy(split(policy.whole, whole)), policy(whole))
    assert model_of(policy_keys="a,b,c").policy_parts is None
    assert model_of(value_keys="b").policy_parts is None


@pytest.mark.parametrize(
    "keys", [OTHERS, {"policy_keys": "b"}, {"value_keys": "a,b"}], ids=["both", "policy", "value"]
)
def test_the_gradient_in_numpy_is_that_of_autograd(keys: dict[str, str]) -> None:
    model = model_of(**keys)
    assert_same_gradient(model, make_batch(model))


@pytest.mark.parametrize("keys", [{"value_keys": "a,c"}, {}])
def test_policy_and_value_may_share_what_they_read(keys: dict[str, str]) -> None:
    model = model_of(policy_keys="a,c", **keys, share_trunk=True)
    assert model.value_trunk is model.policy_trunk
    assert_same_gradient(model, make_batch(model))


def test_a_memory_is_of_the_parts_that_its_encoder_reads() -> None:
    parts = make_components(**NUMBERS, model="lstm", policy_keys="c,a", num_minibatches=1)
    assert isinstance(parts.policy().actor, NumpyActor)
    assert parts.policy().parts == ["a", "c"]
    trunk = parts.model.policy_trunk
    rows, states = torch.randn(4, 5), torch.randn(4, trunk.state_size)
    features, after = trunk.step(rows, states)
    rows[:, 2] = 9.0
    assert torch.equal(trunk.step(rows, states)[0], features)
    actor = parts.policy().actor
    given = states.numpy().copy()
    actor(rows.numpy(), None, states=given)
    np.testing.assert_allclose(given, after.detach().numpy(), atol=1e-6)


def change(policy: Any, row: np.ndarray, name: str) -> np.ndarray:
    """Return an observation with another value of a part."""
    space: Any = policy.spaces.observations
    changed = row.copy()
    changed.reshape(-1)[space.places[name]] = 0
    return changed


class Three(Identity):
    def __init__(self) -> None:
        super().__init__("Dict", "Discrete")


THREE_PARTS = f"{__name__}:Three"
IMAGES = ("left", "arm.camera")


@pytest.mark.parametrize(
    ("keys", "seen", "critic"),
    [
        ({"policy_keys": "arm"}, {"arm.camera", "arm.position"}, {*IMAGES, "arm.position"}),
        ({"policy_keys": "left", "value_keys": "arm"}, {"left"}, {"arm.camera", "arm.position"}),
        (
            {"policy_keys": ",".join(IMAGES), "value_keys": "arm.position"},
            {*IMAGES},
            {"arm.position"},
        ),
        ({"value_keys": "left"}, {*IMAGES, "arm.position"}, {"left"}),
    ],
)
def test_policy_and_value_depend_on_their_parts_only(
    keys: dict[str, str], seen: set[str], critic: set[str]
) -> None:
    policy = make_components("Lights", **THREE, **keys).policy()
    assert {*policy.parts} == seen
    env = policy.make_env()
    row = np.full_like(env.reset(seed=1)[0], 63)  # bytes of numbers that are no zeros
    probabilities = policy.distribution(row).log_probs
    for name in (*IMAGES, "arm.position"):
        changed = change(policy, row, name)
        is_same = torch.equal(policy.distribution(changed).log_probs, probabilities)
        assert is_same == (name not in seen), name
        assert (policy.values(changed) == policy.values(row)) == (name not in critic), name


def test_a_run_with_keys_is_resumed_exported_and_acts_on_its_keys(
    tmp_path: Path, call: Call
) -> None:
    flags = {**PLAIN, **OTHERS, "num_envs": 4, "num_steps": 8, "num_minibatches": 2}
    flags |= {"report": False, "eval_episodes": 0, "verbose": 0, "learning_rate": 1e-3}
    train(THREE_PARTS, **flags, total_steps=96, run_dir=tmp_path / "whole")
    train(THREE_PARTS, **flags, total_steps=64, run_dir=tmp_path / "run")
    resumed = train(THREE_PARTS, resume=tmp_path / "run", total_steps=96)
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")
    policy = load_policy(resumed.checkpoint)
    assert policy.predict({"a": 1, "c": [0, 1]}) in range(4)
    file = tmp_path / "policy.onnx"
    assert call("export", str(resumed.checkpoint), str(file), f"--env_name={THREE_PARTS}")[0] == 0
    assert [x.name for x in onnxruntime.InferenceSession(file).get_inputs()] == ["a", "c"]
    with pytest.raises(ValueError, match="the observation has no c: the policy reads a, c"):
        policy.predict({"a": 1, "b": [0.5]})


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--policy_keys=a,x", "--policy_keys=x is no part that it may name: give some of a, b, c"),
        ("--value_keys=", "--value_keys=: expected string or none"),
        ("--value_keys=a --share_trunk=True", "--value_keys=a: policy and value share a trunk"),
        ("--value_keys=a --model=lstm", "--value_keys=a: policy and value share a trunk here"),
        (
            "--policy_keys=a --model=examples.own_model:NormalizedActorCritic",
            "--policy_keys is for the networks that are built in",
        ),
    ],
)
def test_keys_that_mean_nothing_are_refused(flags: str, message: str, call: Call) -> None:
    env = (f"--env_name={THREE_PARTS}", "--num_envs=2", "--num_steps=8")
    code, _, error = call(*env, *flags.split())
    assert (code, error.count("\n")) == (2, 1)
    assert message in error
