"""Losses against golden numbers and hand arithmetic."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from ppo import losses

LOG_PROBS, OLD_LOG_PROBS = np.array([[-0.5, -1.0, -0.2, -2.0], [-0.6, -0.7, -0.9, -2.0]])
ADVANTAGES = np.array([1, -0.5, 2, -1])
VALUES, OLD_VALUES, RETURNS = np.array([[1, 0.2, -0.5], [0.5, 0.3, -0.1], [1.2, 0, -1]])


def tensors(*arrays: Any) -> list[Any]:
    return [torch.as_tensor(array, dtype=torch.float64) for array in arrays]


def policy_loss(advantages: Any) -> float:
    tables = tensors(LOG_PROBS, OLD_LOG_PROBS, advantages)
    return losses.clipped_surrogate(*tables, clip_coef=0.2).item()


def test_golden_policy_losses():
    assert policy_loss(ADVANTAGES) == pytest.approx(-0.5262927, abs=6e-8)
    standardized = losses.standardize(*tensors(ADVANTAGES)).numpy()
    assert standardized == pytest.approx([0.453921, -0.635489, 1.180194, -0.998625], abs=6e-7)
    assert policy_loss(standardized) == pytest.approx(-0.1027189, abs=6e-8)


def test_golden_metrics():
    assert losses.clip_fraction(*tensors(LOG_PROBS, OLD_LOG_PROBS), 0.2).item() == 0.5
    kl = losses.approximate_kl(*tensors(LOG_PROBS, OLD_LOG_PROBS)).item()
    assert kl == pytest.approx(0.0899355, abs=6e-8)  # k3; k1 is -0.125


@pytest.mark.parametrize(("clip_coef", "expected"), [(0.2, 0.13), (None, 0.055)])
def test_golden_value_loss(clip_coef, expected):
    found = losses.value_loss(*tensors(VALUES, OLD_VALUES, RETURNS), clip_coef=clip_coef)
    assert found.item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("ratio", "advantage", "gradient"),
    [
        pytest.param(1.5, 2.0, 0.0, id="already-more-likely-enough"),
        pytest.param(0.5, -2.0, 0.0, id="already-less-likely-enough"),
        pytest.param(1.5, -2.0, 3.0, id="wrongly-more-likely"),
        pytest.param(0.5, 2.0, -1.0, id="wrongly-less-likely"),
        pytest.param(1.1, 2.0, -2.2, id="inside"),
    ],
)
def test_policy_gradient_is_minus_ratio_times_advantage_or_zero_where_clipped(
    ratio, advantage, gradient
):
    log_probs = torch.tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
    losses.clipped_surrogate(log_probs, *tensors([0], [advantage]), clip_coef=0.2).backward()
    assert log_probs.grad is not None
    assert log_probs.grad.item() == pytest.approx(gradient)


def test_gradients_are_zero_where_a_ratio_overflows_or_a_value_has_moved_enough():
    log_probs = torch.tensor([200.0], requires_grad=True)
    losses.clipped_surrogate(log_probs, torch.zeros(1), torch.ones(1), clip_coef=0.2).backward()
    values = torch.tensor([1.0], requires_grad=True)
    losses.value_loss(values, torch.tensor([0.5]), torch.tensor([1.2]), clip_coef=0.2).backward()
    assert [x.grad.tolist() for x in (log_probs, values)] == [[0], [0]]


def test_a_single_advantage_stays_and_equal_ones_become_zero():
    assert losses.standardize(torch.tensor([3.0])).tolist() == [3]
    assert losses.standardize(torch.full((4,), 3.0)).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("values", "returns", "expected"),
    [
        pytest.param([1, 2, 4], [1, 2, 4], 1, id="perfect"),
        pytest.param([5, 5, 5], [1, 2, 4], 0, id="constant-values"),
        pytest.param([1, 0], [0, 1], 1 - 2 / 0.5, id="worse-than-constant"),
        pytest.param([1, 2, 4], [3, 3, 3], 0, id="constant-returns"),
    ],
)
def test_explained_variance(values, returns, expected):
    found = losses.explained_variance(*tensors(values, returns))
    assert found.item() == pytest.approx(expected)
