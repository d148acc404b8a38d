"""The state in a checkpoint, and states that cannot be resumed."""

from importlib import metadata
from typing import Any

import numpy as np
import pytest
import torch

from ppo.components import Components
from ppo.errors import CheckpointError
from ppo.monitor import Monitor, all_callbacks
from ppo.peers import Peers
from ppo.run.checkpoint import copy_state
from ppo.run.resume import restore, snapshot
from tests.running import learn, make_components

SMALL = {"num_envs": 2, "num_steps": 8, "num_minibatches": 2, "hidden_size": 8}


def make(env_name: str = "Counting-v0", **values: Any) -> tuple[Components, Monitor]:
    parts = make_components(env_name, **{**SMALL, **values})
    return parts, Monitor(parts, None, all_callbacks(parts))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def state() -> dict[str, Any]:
    """The state of a run after an iteration."""
    parts, monitor = make()
    with parts.make_pool() as workers:
        learn(parts, workers.collect(1))
    return copy_state(snapshot(parts, monitor))


def test_a_state_is_restored_without_differences(state: dict[str, Any]) -> None:
    parts, monitor = make()
    assert restore(parts, monitor, state) == []
    again = copy_state(snapshot(parts, monitor))
    assert again.keys() == state.keys()
    for name, value in state.items():
        same = torch.equal(again[name], value) if torch.is_tensor(value) else again[name] == value
        assert same, name


def test_flags_and_versions_that_differ_are_listed(state: dict[str, Any]) -> None:
    parts, monitor = make(learning_rate=1e-3)
    older = {**state, "made_with": {**state["made_with"], "torch": "1.0"}}
    rate, version = restore(parts, monitor, older)
    assert rate == "learning_rate=0.001 instead of 0.00025"
    assert version == f"torch={metadata.version('torch')} instead of 1.0"


def test_a_flag_that_is_newer_than_the_checkpoint_has_had_its_default(
    state: dict[str, Any],
) -> None:
    older = {name: value for name, value in state["config"].items() if name != "learner"}
    parts, monitor = make()
    assert restore(parts, monitor, {**state, "config": older}) == []


def test_an_adaptive_learning_rate_that_is_given_anew_counts(state: dict[str, Any]) -> None:
    parts, monitor = make(learning_rate="adaptive:1e-3")
    assert parts.learner.learning_rate == 1e-3
    restore(parts, monitor, state)
    assert parts.learner.learning_rate == 1e-3
    adapted = {**state, "learning_rate": 5e-4, "config": dict(parts.config.__getstate__())}
    restore(parts, monitor, adapted)
    assert parts.learner.learning_rate == 5e-4  # the same flag: it goes on


def test_a_run_of_the_cpu_is_resumed_on_a_gpu(
    state: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, monitor = make()
    there = parts.learning_state()
    cuda = {"generator.cuda": torch.zeros(16, dtype=torch.uint8)}
    monkeypatch.setattr(Components, "learning_state", lambda self: {**there, **cuda})
    assert restore(parts, monitor, state) == []


def test_a_policy_keeps_its_statistics() -> None:
    parts, _ = make(normalize_observations=True)
    policy = parts.policy()
    observations = np.ones((1, 2), np.float32)
    before = policy.normalize(observations)
    parts.normalize_observation.update(np.full((4, 2, 2), 7.0), Peers().gather)
    assert (parts.normalize_observation(observations) != before).any()
    np.testing.assert_array_equal(policy.normalize(observations), before)


def test_fixed_flags_cannot_be_changed(state: dict[str, Any]) -> None:
    parts, monitor = make(num_steps=16)
    with pytest.raises(CheckpointError, match=r"the run was begun with num_steps=8, not 16"):
        restore(parts, monitor, state)


def test_every_tensor_that_is_missing_or_of_another_shape_is_named(state: dict[str, Any]) -> None:
    parts, monitor = make()
    name = "model.value_head.bias"
    broken = {**state, "next.observations": torch.zeros(2, 3, dtype=torch.float64)}
    del broken[name]
    broken["optimizer.exp_avg"] = torch.zeros(5)
    with pytest.raises(CheckpointError) as error:
        restore(parts, monitor, broken)
    message = str(error.value)
    assert f"{name} is missing" in message
    assert "next.observations is torch.float64 (2, 3), here torch.float64 (2, 2)" in message
    assert "optimizer.exp_avg is torch.float32 (5,)" in message
