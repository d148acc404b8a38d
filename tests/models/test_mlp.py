"""The network: its initial weights, what it reads and returns."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.testing import assert_close

from tests.running import make_network

VECTOR, MATRIX = spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (2, 3))
DISCRETE, CONTINUOUS = spaces.Discrete(4), spaces.Box(-1, 1, (2,))

torch.set_num_threads(1)  # as in training: to start others would take longer than these tests

ACTION_SPACES = pytest.mark.parametrize(
    "action_space", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"]
)
TRUNKS = pytest.mark.parametrize("share_trunk", [False, True], ids=["separate", "shared"])


def make_mlp(observation_space=VECTOR, action_space=DISCRETE, share_trunk=False, seed=0):
    return make_network(observation_space, action_space, seed, share_trunk=share_trunk)


@ACTION_SPACES
def test_initial_weights_are_orthogonal_with_the_gain_of_their_layer(action_space):
    gains = {
        "policy_trunk": math.sqrt(2),
        "value_trunk": math.sqrt(2),
        "policy_head": 0.01,
        "value_head": 1,
    }
    for name, parameter in make_mlp(action_space=action_space).named_parameters():
        if name.endswith("weight"):
            rows = parameter if len(parameter) <= parameter.shape[1] else parameter.T
            assert_close(
                rows @ rows.T,
                gains[name.split(".")[0]] ** 2 * torch.eye(len(rows)),
                atol=1e-5,
                rtol=0,
            )
        else:
            assert not parameter.any()


def test_initial_policy_is_nearly_uniform():
    probabilities = make_mlp()(torch.randn(100, 3))[0].log_probs.exp()
    assert probabilities.max() - 1 / 4 < 0.01


@ACTION_SPACES
def test_outputs_have_one_row_for_each_observation(action_space):
    distribution, values = make_mlp(MATRIX, action_space)(torch.zeros(5, 2, 3))
    assert values.shape == distribution.entropy().shape == (5,)
    assert distribution.mode().shape == ((5, 1) if action_space is DISCRETE else (5, 2))


def test_a_matrix_is_read_as_its_flat_vector():
    flat, matrix = make_mlp(spaces.Box(-1, 1, (6,))), make_mlp(MATRIX)
    observations = torch.randn(5, 2, 3)
    assert_close(matrix(observations)[1], flat(observations.reshape(5, 6))[1])


@TRUNKS
def test_outputs_are_those_of_two_tanh_layers_and_a_linear_one(share_trunk):
    model = make_mlp(share_trunk=share_trunk)
    weights = {name: tensor.double().numpy() for name, tensor in model.state_dict().items()}
    observations = np.random.default_rng(0).normal(size=(5, 3))

    def linear(layer, inputs):
        return inputs @ weights[f"{layer}.weight"].T + weights[f"{layer}.bias"]

    def network(first, second, last):
        return linear(last, np.tanh(linear(second, np.tanh(linear(first, observations)))))

    distribution, values = model(torch.from_numpy(observations))
    expected = network("value_trunk.layers.0", "value_trunk.layers.1", "value_head")[:, 0]
    np.testing.assert_allclose(values.detach(), expected, atol=1e-5)
    expected = network("policy_trunk.layers.0", "policy_trunk.layers.1", "policy_head.logits")
    np.testing.assert_allclose(distribution.logits.detach()[:, 0], expected, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float64])
def test_observations_may_be_of_any_dtype(dtype):
    model, observations = make_mlp(), torch.tensor([[0, 1, 2], [3, 4, 5]])
    distribution, values = model(observations.to(dtype))
    expected_distribution, expected_values = model(observations.float())
    assert_close(values, expected_values)
    assert_close(distribution.logits, expected_distribution.logits)
