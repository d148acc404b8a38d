"""Networks written out in numpy: what has a layout, and how it acts, against torch."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.nn.utils import parameters_to_vector

from ppo.algorithm.learner import Learner
from ppo.config.config import Config
from ppo.extras.fast.backend import NumpyBackend, make_backend
from ppo.extras.fast.mlp import NumpyActor, layout_of
from ppo.models.actor import Actor
from ppo.models.actor_critic import ActorCritic, FeedForward
from tests.running import make_network, run_main

B = 37
VECTOR = spaces.Box(-1, 1, (5,))
SPACES = {
    "choice": spaces.Discrete(4),
    "choices": spaces.MultiDiscrete([3, 3]),
    "numbers": spaces.Box(-1, 1, (2,)),
    "bits": spaces.MultiBinary(3),
}
EACH_SPACE = pytest.mark.parametrize("action_space", SPACES.values(), ids=SPACES)
LSTM, GRU = ({"model": name, "hidden_size": 128, "share_trunk": True} for name in ("lstm", "gru"))
NETWORKS = {
    "separate": {"share_trunk": False},
    "shared": {"share_trunk": True},
    "lstm": LSTM,
    "gru": GRU,
    "relu lstm": {**LSTM, "activation": "relu", "num_layers": 1},
}
EACH_TRUNK = pytest.mark.parametrize("share_trunk", [False, True], ids=["separate", "shared"])


def make_model(action_space, **values):
    """Weights are far from their first, in which the policy's head is nearly zero."""
    model = make_network(VECTOR, action_space, log_std_init=0.3, **values)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model


@pytest.mark.parametrize("name", NETWORKS)
def test_the_actor_acts_as_the_one_by_torch(name) -> None:
    for action_space in SPACES.values():
        assert_acts_as_by_torch(action_space, NETWORKS[name])


def assert_acts_as_by_torch(action_space, values) -> None:
    model, other = (make_model(action_space, **values) for _ in range(2))
    weights = parameters_to_vector(model.parameters()).detach().numpy()
    shared = np.zeros_like(weights)
    one, by_torch = NumpyActor(layout_of(model), shared), Actor(other, weights)
    shared[:] = weights
    one.refresh()
    shared[:] = 0  # until the next refresh that changes nothing
    noise = by_torch.draw_noise(np.random.default_rng(0), B)
    np.testing.assert_array_equal(one.draw_noise(np.random.default_rng(0), B), noise)
    observations = np.random.default_rng(1).normal(size=(B, 5)).astype(np.float32)
    assert one.state_size == by_torch.state_size == model.state_size
    before = np.random.default_rng(2).normal(size=(B, model.state_size)).astype(np.float32)
    states = np.stack([before, before])
    records = np.zeros((2, B, model.num_shared_features), np.float32)
    no_mask = np.zeros((B, 0), np.bool_)
    for _ in range(3):  # the states are read again
        found = one(observations, noise, no_mask, states=states[0], features=records[0])
        expected = by_torch(observations, noise, no_mask, states=states[1], features=records[1])
        np.testing.assert_allclose(found, expected, atol=1e-5)
        np.testing.assert_allclose(*records, atol=1e-5)
        np.testing.assert_allclose(*states, atol=1e-5)
    assert (states[0] != before).all()
    found = one(observations, None, states=states[0])
    np.testing.assert_allclose(found, by_torch(observations, None, states=states[1]), atol=1e-5)
    if model.policy_head.mask_size:
        mask = np.random.default_rng(2).random((B, model.policy_head.mask_size)) > 0.5
        mask[:, :: model.policy_head.shape[-1]] = True
        found = one(observations, noise, mask, states=states[0])
        expected = by_torch(observations, noise, mask, states=states[1])
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == np.int64


@pytest.mark.parametrize(
    ("action_space", "values"),
    [
        (SPACES["choice"], {"activation": "gelu"}),
        (SPACES["numbers"], {"use_sde": True}),
        (SPACES["numbers"], {"squash_actions": True}),
        (spaces.MultiDiscrete([2, 3]), {}),
        (spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)]), {}),
    ],
)
def test_a_model_with_a_part_that_is_not_written_out_has_no_layout(action_space, values) -> None:
    assert layout_of(make_network(VECTOR, action_space, **values)) is None


def test_a_model_or_a_learner_of_your_own_is_left_to_autograd() -> None:
    class Own(FeedForward):
        pass

    class OwnValues(torch.nn.Linear):
        pass

    class OwnLearner(Learner):
        def loss(self, *arguments):
            return super().loss(*arguments)

    model = make_network(VECTOR, SPACES["choice"])
    config = Config(hidden_size=64, share_trunk=False)
    other = make_network(VECTOR, SPACES["choice"])
    other.value_head = OwnValues(64, 1)
    assert layout_of(other) is None
    own = Own(lambda layers: model.policy_trunk, SPACES["choice"], config)
    assert layout_of(own) is None
    assert layout_of(ActorCritic()) is None
    plain = Config(clip_value_coef=None)
    assert isinstance(make_backend(Learner(model, plain)), NumpyBackend)
    assert make_backend(Learner(own, plain)) is None
    assert make_backend(OwnLearner(model, plain)) is None
    for values in (LSTM, GRU):  # which only act in numpy
        recurrent = make_model(SPACES["choice"], **values)
        assert layout_of(recurrent).cell[0] == values["model"]
        assert make_backend(Learner(recurrent, plain)) is None
    with_term = Learner(model, plain)
    with_term.terms.append(lambda *_: (torch.zeros(()), {}))
    assert make_backend(with_term) is None


@pytest.mark.slow_but_first
@pytest.mark.parametrize("model", ["mlp", "lstm"])
def test_a_worker_that_acts_on_vectors_never_imports_torch(model, tmp_path) -> None:
    flags = (
        f"--model={model}",
        "--env_name=tests.environments:NoTorch",
        "--num_iterations=2",
        "--num_workers=2",
        "--logger=none",
    )
    done = run_main(*flags, f"--run_dir={tmp_path}/run")
    assert (done.returncode, "torch" in done.stderr) == (0, False)
