"""Learning with gradients written out in numpy, against torch's autograd."""

import gc
import threading
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from ppo.algorithm.backend import TorchBackend
from ppo.algorithm.learner import Learner
from ppo.algorithm.rollout import Batch
from ppo.components import Components
from ppo.config.config import Config
from ppo.config.settings import settings_of
from ppo.extras.fast import backend
from ppo.extras.fast.backend import NumpyBackend, keeps_gradients
from tests.algorithm.test_batch import collected
from tests.extras.fast.test_numpy_mlp import EACH_SPACE, EACH_TRUNK, SPACES, VECTOR, B, make_model
from tests.running import learn, make_components, make_network, worker_of
from tests.test_components import SMALL


def make_batch(model, masked: bool = False) -> dict[str, torch.Tensor]:
    """Ratios and values on both sides of what they are clipped to."""
    generator = torch.Generator().manual_seed(1)
    draw = partial(torch.randn, generator=generator)
    batch = {"observations": draw(B, 5)}
    with torch.no_grad():
        distribution, values = model(batch["observations"])
        if masked:
            batch["action_masks"] = (
                torch.rand(B, model.policy_head.mask_size, generator=generator) > 0.3
            )
            batch["action_masks"][:, :: model.policy_head.shape[-1]] = True
            distribution = distribution.masked(batch["action_masks"])
        noise = model.policy_head.draw_noise(np.random.default_rng(2), B)
        batch["actions"] = distribution.sample(torch.from_numpy(noise))
        batch["log_probs"] = distribution.log_prob(batch["actions"]) + 0.2 * draw(B)
    return {
        **batch,
        "values": values + 0.3 * draw(B),
        "advantages": draw(B),
        "returns": values + draw(B),
    }


def arrays(batch: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in batch.items()}


def learners(model, **values):
    config = Config(**{"clip_value_coef": 0.2, "normalize_rewards": False, **values})
    by_torch, by_numpy = Learner(deepcopy(model), config), Learner(model, config)
    by_numpy.choose_backend()
    assert isinstance(by_numpy.backend, NumpyBackend)
    return by_torch, by_numpy


def assert_same_gradient(model, batch, **values) -> None:
    by_autograd, written_out = learners(model, **values)
    expected = by_autograd.backend.compute_gradients(batch)
    by_autograd.gradients /= (scale := by_autograd.gradients.abs().max())
    metrics = written_out.backend.compute_gradients(arrays(batch))
    written_out.gradients /= scale
    torch.testing.assert_close(written_out.gradients, by_autograd.gradients, rtol=0, atol=1e-5)
    assert list(metrics) == list(expected)
    for name, value in expected.items():
        assert float(metrics[name]) == pytest.approx(value.item(), abs=2e-6, rel=2e-6), name


@EACH_TRUNK
@EACH_SPACE
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize(("num_layers", "large"), [(1, 10**9), (3, 10**9), (2, 1)])
def test_the_gradient_is_that_of_autograd(
    action_space, share_trunk, activation, num_layers, large, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "MIN_WORK_FOR_THREADS", large)
    model = make_model(
        action_space, share_trunk=share_trunk, activation=activation, num_layers=num_layers
    )
    assert_same_gradient(model, make_batch(model))


@EACH_SPACE
@pytest.mark.parametrize("large", [10**9, 1])
def test_the_gradient_is_that_of_autograd_where_policy_and_value_differ_in_size(
    action_space, large, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "MIN_WORK_FOR_THREADS", large)
    model = make_model(action_space, policy_layers="7", value_layers="11,5,9")
    widths = [layer.weight.shape for layer in model.value_trunk.layers]
    assert widths == [(11, 5), (5, 11), (9, 5)]
    assert model.policy_trunk.layers[0].weight.shape == (7, 5)
    batch = make_batch(model)
    assert_same_gradient(model, batch)
    assert_same_gradient(make_model(action_space, value_layers="3"), batch)


@pytest.mark.parametrize(
    "values", [{"clip_value_coef": None}, {"clip_value_coef": 10.0}, {"entropy_coef": 0.3}]
)
@pytest.mark.parametrize("normalize", ["minibatch", "none"])
@EACH_SPACE
def test_the_gradient_is_that_of_autograd_whatever_the_coefficients(
    action_space, values, normalize
) -> None:
    model = make_model(action_space)
    assert_same_gradient(model, make_batch(model), normalize_advantages=normalize, **values)


@pytest.mark.parametrize("action_space", [SPACES["choice"], SPACES["choices"]])
def test_the_gradient_is_that_of_autograd_within_masks(action_space) -> None:
    model = make_model(action_space)
    assert_same_gradient(model, make_batch(model, masked=True))


def test_the_gradient_is_that_of_autograd_for_a_single_transition_and_for_extreme_ratios() -> None:
    model = make_model(SPACES["choice"])
    batch = make_batch(model)
    assert_same_gradient(model, {name: tensor[:1] for name, tensor in batch.items()})
    batch["log_probs"][:5] -= 30
    batch["log_probs"][5:9] += 30
    with np.errstate(all="raise"):
        assert_same_gradient(model, batch)


def test_one_thread_and_two_compute_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_network(VECTOR, SPACES["numbers"], hidden_size=128)
    batch = arrays(make_batch(model))
    found = []
    for work in (10**9, 1):
        monkeypatch.setattr(backend, "MIN_WORK_FOR_THREADS", work)
        learner = learners(deepcopy(model))[1]
        metrics = learner.backend.compute_gradients(batch)
        evaluated = learner.backend.log_probs_and_values(batch)
        found.append((metrics, learner.gradients.tolist(), [x.tolist() for x in evaluated]))
    assert found[0] == found[1]


@EACH_TRUNK
@EACH_SPACE
def test_values_and_log_probabilities_are_those_of_torch(action_space, share_trunk) -> None:
    model = make_model(action_space, share_trunk=share_trunk)
    batch = {
        name: tensor
        for name, tensor in make_batch(model).items()
        if name in ("observations", "actions")
    }
    by_torch, by_numpy = learners(model, num_minibatches=3)
    with torch.no_grad():
        expected = by_torch.backend.log_probs_and_values(batch)
        found = by_numpy.backend.log_probs_and_values(arrays(batch))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        if share_trunk:
            features = {"features": model.policy_trunk(batch["observations"])}
            found = by_numpy.backend.log_probs_and_values(arrays(batch | features))
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        expected_values = by_torch.backend.values(batch["observations"])
    found_values = by_numpy.backend.values(batch["observations"].numpy())
    np.testing.assert_allclose(found_values, expected_values, rtol=1e-5, atol=1e-5)


def test_learning_leads_to_the_same_weights() -> None:
    values = {
        "env_name": "CartPole-v1",
        "num_envs": 4,
        "num_steps": 32,
        "total_steps": 512,
        "learning_rate": 1e-3,
    }
    weights = []
    for other in (None, TorchBackend):
        parts = Components(settings_of(Config(**values, num_workers=0)))
        if other:
            parts.learner.backend = other(parts.learner)
        worker = worker_of(parts, 4)
        for iteration in range(1, 5):
            metrics = learn(parts, worker.collect(iteration))
        weights.append((parts.learner.weights.clone(), metrics))
    (ours, mine), (torchs, its) = weights
    torch.testing.assert_close(ours, torchs, rtol=0, atol=1e-4)
    assert mine.keys() == its.keys()


def test_the_thread_ends_with_its_learner() -> None:
    learner = learners(make_model(SPACES["choice"]))[1]
    thread = learner.backend.value_thread.submit(threading.current_thread).result()
    assert thread.is_alive()
    del learner
    gc.collect()
    thread.join(timeout=10)
    assert not thread.is_alive()


class Conversions:
    """Count calls of torch.from_numpy, torch.as_tensor and Tensor.numpy."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: dict[str, list[int]] = {"to torch": [], "to numpy": []}
        for owner, name, way, size in (
            (torch, "from_numpy", "to torch", np.size),
            (torch, "as_tensor", "to torch", np.size),
            (torch.Tensor, "numpy", "to numpy", torch.Tensor.numel),
        ):
            convert = getattr(owner, name)

            def counted(table: Any, *rest: Any, _do=convert, _way=way, _size=size, **more: Any):
                self.sizes[_way].append(int(_size(table)))
                return _do(table, *rest, **more)

            monkeypatch.setattr(owner, name, counted)


def test_numpy_learns_from_a_rollout_that_never_becomes_a_tensor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """But for its values and returns, of which torch computes the explained variance."""
    parts = make_components("Counting-v0", num_envs=4, num_steps=16, num_minibatches=2)
    rollout = parts.finish_collect(1, worker_of(parts, 4).collect(1))
    conversions = Conversions(monkeypatch)
    batch = parts.make_batch(rollout)
    assert conversions.sizes == {"to torch": [], "to numpy": []}
    assert all(isinstance(table, np.ndarray) for table in batch.values())
    assert np.shares_memory(batch["actions"], rollout.actions)
    parts.learner.update(batch, 1)
    assert conversions.sizes["to torch"] == [64, 64]
    assert set(conversions.sizes["to numpy"]) <= {64}  # an epoch's permutation of 64 rows


def test_an_estimator_of_ones_own_keeps_the_gradients_in_numpy() -> None:
    class Doubled(Learner):
        def advantages(self, *tables: Any) -> Any:
            return 2 * super().advantages(*tables)

    class Other(Learner):
        def loss(self, minibatch: Batch, distribution: Any, values: Any) -> Any:
            return super().loss(minibatch, distribution, values)

    assert keeps_gradients(Doubled)
    assert not keeps_gradients(Other)
    made = make_components("Counting-v0", learner=f"{__name__}:Own").learner
    assert isinstance(made, Own)
    assert isinstance(made.backend, NumpyBackend)
    plain, doubled = (collected(**options)[1] for options in ({}, {"learner": f"{__name__}:Own"}))
    np.testing.assert_allclose(doubled["advantages"], 2 * plain["advantages"], rtol=1e-6)


class Own(Learner):
    """For --learner."""

    def advantages(self, *tables: Any) -> Any:
        return 2 * super().advantages(*tables)


def test_the_learner_is_in_numpy_where_that_can_do_all_the_model_does() -> None:
    plain, gelu = (
        make_components("Counting-v0", **SMALL, **x) for x in ({}, {"activation": "gelu"})
    )
    assert isinstance(plain.learner.backend, NumpyBackend)
    assert isinstance(gelu.learner.backend, TorchBackend)
