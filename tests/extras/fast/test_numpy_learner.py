"""Learning with gradients written out in numpy, against torch's autograd."""

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
def test_the_gradient_is_that_of_autograd(action_space, share_trunk) -> None:
    for activation, num_layers in (("tanh", 1), ("relu", 3)):
        values = {"activation": activation, "num_layers": num_layers}
        model = make_model(action_space, share_trunk=share_trunk, **values)
        assert_same_gradient(model, make_batch(model))


@EACH_TRUNK
@EACH_SPACE
def test_the_gradient_is_that_of_autograd_for_values_that_are_scaled(
    action_space, share_trunk
) -> None:
    model = make_model(action_space, share_trunk=share_trunk, value_norm="popart")
    model.value_head.mean.fill_(-0.5)
    model.value_head.std.fill_(2.0)
    assert_same_gradient(model, make_batch(model))


@pytest.mark.parametrize("threads_from", [10**9, 1], ids=["one thread", "two threads"])
def test_the_gradient_is_that_of_autograd_where_policy_and_value_differ_in_size(
    threads_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "MIN_WORK_FOR_THREADS", threads_from)
    model = make_model(SPACES["numbers"], policy_layers="7", value_layers="11,5,9")
    assert [layer.weight.shape[0] for layer in model.value_trunk.layers] == [11, 5, 9]
    assert_same_gradient(model, make_batch(model))


def test_the_gradient_is_that_of_autograd_whatever_the_coefficients() -> None:
    model = make_model(SPACES["choices"])
    for values in (
        {"clip_value_coef": None, "normalize_advantages": "minibatch"},
        {"clip_value_coef": 10.0, "normalize_advantages": "none"},
        {"entropy_coef": 0.3},
    ):
        assert_same_gradient(model, make_batch(model), **values)


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


@EACH_SPACE
def test_values_and_log_probabilities_are_those_of_torch(action_space) -> None:
    model = make_model(action_space, share_trunk=True)
    made = make_batch(model)
    batch = {name: made[name] for name in ("observations", "actions")}
    by_torch, by_numpy = learners(model, num_minibatches=3)
    with torch.no_grad():
        expected = by_torch.backend.log_probs_and_values(batch)
        features = {"features": model.policy_trunk(batch["observations"])}
        for given in (batch, batch | features):
            found = by_numpy.backend.log_probs_and_values(arrays(given))
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
