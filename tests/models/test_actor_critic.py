"""The interface of actor-critics, and the checks of models of your own."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.testing import assert_close

from ppo.config.config import Config
from ppo.models.actor_critic import ActorCritic, check_model, named_tensors, to_vector
from ppo.models.distributions import policy_head
from tests.running import make_network

VECTOR, DISCRETE = spaces.Box(-1, 1, (3,)), spaces.Discrete(4)


class Own(ActorCritic):
    """The least that a model of the user's own needs."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Linear(3, 1)
        self.policy_head = policy_head(3, DISCRETE, Config())

    def forward(self, observations: Tensor) -> Any:
        return self.policy_head(observations), self.value(observations).squeeze(-1)


class WithoutDistribution(Own):
    def forward(self, observations: Tensor) -> Any:
        return observations, self.value(observations).squeeze(-1)


class WithValueColumn(Own):
    def forward(self, observations: Tensor) -> Any:
        return self.policy_head(observations), self.value(observations)


class WithBuffer(Own):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.full((3,), 7))
        self.register_buffer("table", torch.zeros(9), persistent=False)


def test_what_workers_get_of_a_model_is_its_parameters_and_then_its_lasting_buffers() -> None:
    model = WithBuffer()
    check_model(model, VECTOR)
    tensors = named_tensors(model)
    assert list(tensors) == [*dict(model.named_parameters()), "mean"]
    vector = to_vector(tensors.values())
    assert (vector.dtype, vector[-4:].tolist()[1:]) == (torch.float32, [7, 7, 7])


def test_a_model_of_your_own_needs_a_head_and_forward_only() -> None:
    model = Own()
    check_model(model, VECTOR)
    distribution, features, states = model.act(torch.zeros(5, 3), None)
    assert distribution.mode().shape == (5, 1)
    assert features is None
    assert states is None
    assert model.state_size == model.num_shared_features == 0


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (nn.Linear(3, 1), "derive from ActorCritic"),
        (WithoutDistribution(), "distribution made by policy_head"),
        (WithValueColumn(), r"values.* must be \(B,\)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_mistake_of_a_model_of_your_own_is_named(model: nn.Module, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        check_model(model, VECTOR)


@pytest.mark.parametrize("share_trunk", [False, True])
def test_value_reads_the_policys_features_only_if_the_trunk_is_shared(share_trunk: bool) -> None:
    model = make_network(VECTOR, DISCRETE, share_trunk=share_trunk)
    observations = torch.randn(5, 3)
    _, features, _ = model.act(observations, None)
    _, values = model.heads(features, features)
    assert (model.value_trunk is model.policy_trunk) == share_trunk
    assert model.num_shared_features == (64 if share_trunk else 0)
    assert torch.equal(values, model(observations)[1]) == share_trunk


def test_acting_prepares_without_gradients_and_changes_no_result() -> None:
    model = make_network(VECTOR, DISCRETE)
    observations = torch.from_numpy(np.random.default_rng(0).normal(size=(5, 3))).float()
    before = model(observations)[0].logits.detach()
    model.prepare_to_act()
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert_close(model.act(observations, None)[0].logits, before, rtol=0, atol=1e-6)
