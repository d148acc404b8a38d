"""CUDA graphs compute what torch computes without them."""

from typing import Any

import numpy as np
import pytest
import torch

from ppo.algorithm.backend import TorchBackend
from ppo.algorithm.learner import Learner
from ppo.components import Components, make_learner
from ppo.extras.cuda.graphs import can_capture
from tests.running import copy_tables, learn, make_components

SIZES = {"num_envs": 4, "num_steps": 33, "batch_size": 64}  # and a last minibatch of 4
TABLES = {
    "categories": ("Counting-v0", {}),
    "normals": ("Target-v0", {}),
    "masks": ("Masked-v0", {}),
    "parts": ("Camera", {}),
    "pixels": ("Picture-v0", {"screen_size": 36, "model": "cnn_small"}),
}


def on_a_gpu(test: Any) -> Any:
    skip = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
    return pytest.mark.cuda(skip(test))


@pytest.mark.parametrize("name", TABLES)
def test_the_trainers_feed_forward_networks_are_captured(name: str) -> None:
    env_name, values = TABLES[name]
    parts = make_components(env_name, **values)
    assert can_capture(parts.model, parts.config, "cuda")
    assert not can_capture(parts.model, parts.config, "cpu")


@pytest.mark.parametrize(
    ("env_name", "values"),
    [
        ("Counting-v0", {"model": "lstm"}),
        ("Counting-v0", {"cuda_graphs": False}),
        ("Counting-v0", {"model": "examples.own_model:NormalizedActorCritic"}),
        ("Target-v0", {"use_sde": True}),
        ("Target-v0", {"squash_actions": True}),
    ],
)
def test_others_are_not(env_name: str, values: dict[str, Any]) -> None:
    parts = make_components(env_name, **values)
    assert not can_capture(parts.model, parts.config, "cuda")


def on_gpu(name: str, **more: Any) -> Components:
    """Make the parts of a run on a GPU, whose gradient steps are linear in the gradient."""
    env_name, values = TABLES[name]
    plain = {"precision": "float32", "optimizer": "torch.optim:SGD", "inference": "learner"}
    lengths = {"total_steps": 10**5, "clip_coef": "linear:0.3", "entropy_coef": "linear:0.01"}
    return make_components(
        env_name, **{**plain, **SIZES, **lengths, "seed": 3, **values, **more}, device="cuda"
    )


@on_a_gpu
@pytest.mark.parametrize("name", TABLES)
def test_a_run_is_the_same_as_without_graphs(name: str) -> None:
    """Also with minibatches of two sizes, and coefficients that change from update to update."""
    runs = [on_gpu(name, cuda_graphs=graphs) for graphs in (True, False)]
    kinds = [type(parts.learner.backend) for parts in runs]
    assert kinds[0] is not TorchBackend
    assert kinds[1] is TorchBackend
    before = runs[0].learner.weights.clone()
    found = []
    for parts in runs:
        with parts.make_pool() as pool:
            found.append(
                [
                    (learn(parts, pool.collect(iteration)), copy_tables(parts.rollout))
                    for iteration in (1, 2, 3)
                ]
            )
    for (metrics, tables), (wanted, expected) in zip(*found, strict=True):
        for table, values in expected.items():
            np.testing.assert_allclose(tables[table], values, atol=1e-3, err_msg=table)
        for metric, value in wanted.items():
            assert metrics[metric] == pytest.approx(value, rel=1e-3, abs=1e-4), metric
    one, other = (parts.learner.weights for parts in runs)
    moved = (other - before).abs().max().item()
    assert moved > 1e-5
    assert (one - other).abs().max().item() < 0.01 * moved


@on_a_gpu
def test_a_value_coefficient_that_changes_in_a_run_is_followed() -> None:
    gradients = []
    for graphs in (True, False):
        parts = on_gpu("categories", cuda_graphs=graphs)
        with parts.make_pool() as pool:
            batch = parts.make_batch(parts.finish_collect(1, pool.collect(1)))
        for coefficient in (0.5, 2.0):
            parts.change_settings({"value_coef": coefficient})
            parts.learner.set_coefficients()
            minibatch = next(parts.learner._minibatches(batch, 1))
            parts.learner.backend.compute_gradients(minibatch)
            gradients.append(parts.learner.gradients.cpu().clone())
    assert not torch.allclose(gradients[0], gradients[1])
    torch.testing.assert_close(gradients[0], gradients[2], atol=1e-5, rtol=1e-3)
    torch.testing.assert_close(gradients[1], gradients[3], atol=1e-5, rtol=1e-3)


class Bolder(Learner):
    def loss(self, *inputs: Any) -> Any:
        loss, metrics = super().loss(*inputs)
        return 2 * loss, metrics


@on_a_gpu
def test_an_objective_of_the_users_own_is_not_captured() -> None:
    env_name, values = TABLES["categories"]
    parts = make_components(env_name, **SIZES, **values, device="cuda")
    learner = make_learner(parts.model, parts.config, own=Bolder)
    learner.choose_backend()
    assert type(learner.backend) is TorchBackend


def test_a_network_with_another_value_head_is_not_captured() -> None:
    parts = make_components("Counting-v0", value_norm="popart")
    assert not can_capture(parts.model, parts.config, "cuda")
