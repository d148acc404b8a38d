"""Learning and acting in numpy, against torch's autograd and modules."""

from copy import deepcopy
from functools import partial
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from ppo.learner import Learner
from ppo.models.actor import Actor
from ppo.models.actor_critic import named_tensors, to_vector
from ppo.models.numpy_mlp import EMPTY, NumpyActor, structure_of
from ppo.numpy_learner import NumpyLearner, difference
from tests.running import disturb, make_network, make_spaces

B = 37
VECTOR = Box(-1, 1, (5,))
SPACES: dict[str, Any] = {
    "choice": Discrete(4),
    "choices": MultiDiscrete([3, 3]),
    "numbers": Box(-1, 1, (2,)),
    "bits": MultiBinary(3),
}
EACH_SPACE = pytest.mark.parametrize("acts", SPACES.values(), ids=SPACES)
EACH_TRUNK = pytest.mark.parametrize("share_trunk", [False, True], ids=["separate", "shared"])


def make_batch(model: Any, masked: bool = False) -> dict[str, Any]:
    """Ratios and values on both sides of what they are clipped to."""
    generator = torch.Generator().manual_seed(1)
    draw = partial(torch.randn, generator=generator)
    batch = {"observations": draw(B, 5)}
    with torch.no_grad():
        distribution, values = model(batch["observations"])
        if masked:
            shape = distribution.logits.shape
            mask = torch.rand(shape, generator=generator) > 0.3
            mask[..., 0] = True
            batch["action_masks"] = mask.flatten(1)
            distribution = distribution.masked(batch["action_masks"])
        noise = model.policy_head.draw_noise(np.random.default_rng(2), B)
        batch["actions"] = distribution.sample(torch.from_numpy(noise))
        batch["log_probs"] = distribution.log_prob(batch["actions"]) + 0.2 * draw(B)
    old = {"values": values + 0.3 * draw(B), "advantages": draw(B)}
    return {**batch, **old, "returns": values + draw(B)}


def learners(acts: Any, **flags: Any) -> tuple[Learner, NumpyLearner]:
    """Return both kinds of learners of the same weights, far from the first ones."""
    flags = {"clip_value_coef": 0.2, "clip_coef": 0.1, "log_std_init": 0.3, **flags}
    spaces = make_spaces(VECTOR, acts, **flags)
    model = disturb(make_network(VECTOR, acts, **flags))
    assert NumpyLearner.supports(model, spaces.config, [])
    return Learner(deepcopy(model), spaces), NumpyLearner(model, spaces)


def assert_same_gradient(by_torch: Learner, by_numpy: Learner, batch: dict[str, Any]) -> None:
    expected, found = by_torch.gradient(batch), by_numpy.gradient(batch)
    scale = by_torch.gradients.abs().max()
    ours, its = by_numpy.gradients / scale, by_torch.gradients / scale
    torch.testing.assert_close(ours, its, rtol=0, atol=1e-5)
    assert {*found} == {*expected}
    for name, value in expected.items():
        assert float(found[name]) == pytest.approx(float(value), abs=3e-6, rel=3e-6), name


@EACH_TRUNK
@EACH_SPACE
def test_the_gradient_is_that_of_autograd(acts, share_trunk):
    for activation, num_layers in (("tanh", 1), ("relu", 3)):
        flags = {"activation": activation, "num_layers": num_layers, "share_trunk": share_trunk}
        both = learners(acts, **flags)
        assert_same_gradient(*both, make_batch(both[0].model))


@pytest.mark.parametrize("name", ["choice", "choices"])
def test_the_gradient_is_that_of_autograd_within_masks(name):
    both = learners(SPACES[name])
    assert_same_gradient(*both, make_batch(both[0].model, masked=True))


def test_the_gradient_is_that_of_autograd_for_one_row_and_for_extreme_ratios():
    both = learners(SPACES["choice"])
    batch = make_batch(both[0].model)
    assert_same_gradient(*both, {name: tensor[:1] for name, tensor in batch.items()})
    batch["log_probs"][:5] -= 30
    batch["log_probs"][5:9] += 30
    assert_same_gradient(*both, batch)


@EACH_SPACE
@EACH_TRUNK
def test_the_actor_acts_as_the_one_by_torch(acts, share_trunk):
    flags = {"share_trunk": share_trunk, "log_std_init": 0.3}
    model, other = (disturb(make_network(VECTOR, acts, **flags)) for _ in range(2))
    weights = to_vector(named_tensors(model).values()).numpy()
    shared = np.zeros_like(weights)
    structure = structure_of(model)
    assert structure
    one, by_torch = NumpyActor(structure, shared), Actor(other, weights)
    shared[:] = weights
    one.refresh()
    shared[:] = 0  # until the next refresh that changes nothing
    noise = by_torch.draw_noise(np.random.default_rng(0), B)
    np.testing.assert_array_equal(one.draw_noise(np.random.default_rng(0), B), noise)
    observations = np.random.default_rng(1).normal(size=(B, 5)).astype(np.float32)
    records = np.zeros((2, B, model.num_shared_features), np.float32)
    for drawn in (noise, None):
        found = one(observations, drawn, features=records[0])
        expected = by_torch(observations, drawn, features=records[1])
        np.testing.assert_allclose(found, expected, atol=1e-5)
        np.testing.assert_allclose(*records, atol=1e-5)
    np.testing.assert_allclose(
        one.mlp.values(observations, None), by_torch.evaluate(observations, EMPTY)[1], atol=1e-5
    )
    if not isinstance(acts, Box):
        size = model.policy_head.columns.numel()
        mask = np.random.default_rng(2).random((B, size)) > 0.5
        mask[:, :: model.policy_head.shape[1]] = True
        np.testing.assert_array_equal(*(x(observations, noise, mask=mask) for x in (one, by_torch)))
        assert found.dtype == np.int64


def edited(module: Any, name: str, change: Any) -> Any:
    original = getattr(module, name)
    return lambda *arguments, **options: change(original, *arguments, **options)


EDITS: dict[str, tuple[str, Any]] = {
    "no clip of values": ("ppo.losses.value_loss", lambda f, *x, clip_coef: f(*x, clip_coef=None)),
    "far": ("ppo.losses.clipped_surrogate", lambda f, x, y, *z, **k: f(x.fmin(y + 1), y, *z, **k)),
    "standardized": ("ppo.losses.standardize", lambda f, x: x - x.mean()),
    "kl": ("ppo.losses.approximate_kl", lambda f, new, old: (old - new).square().mean() / 2),
    "entropy": ("ppo.models.distributions.Categorical.entropy", lambda f, self: 2 * f(self)),
    "network": ("ppo.models.mlp.VectorTrunk.forward", lambda f, self, x: 0.9 * f(self, x)),
    "clip": ("ppo.learner.Learner.clip_gradient", lambda f, self: self.gradients.sum()),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_of_the_torch_code_is_noticed(name, monkeypatch):
    spaces = make_spaces(VECTOR, SPACES["choice"])
    model = make_network(VECTOR, SPACES["choice"])
    assert difference(model, spaces) == ""
    target, change = EDITS[name]
    place, _, attribute = target.rpartition(".")
    owner = resolve_name(place)
    monkeypatch.setattr(owner, attribute, edited(owner, attribute, change))
    assert difference(model, spaces) != ""


def test_parameters_that_stand_still_are_no_edit():
    spaces = make_spaces(VECTOR, SPACES["numbers"])
    model = make_network(VECTOR, SPACES["numbers"])
    model.policy_head.log_std.requires_grad_(False)
    assert difference(model, spaces) == ""
    assert not model.policy_head.log_std.requires_grad
