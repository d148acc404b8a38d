"""Losses against golden numbers and hand arithmetic."""

import math

import numpy as np
import pytest
import torch

from ppo.algorithm import losses

LOG_PROBS, OLD_LOG_PROBS = np.array([[-0.5, -1.0, -0.2, -2.0], [-0.6, -0.7, -0.9, -2.0]])
ADVANTAGES = np.array([1, -0.5, 2, -1])
VALUES, OLD_VALUES, RETURNS = np.array([[1, 0.2, -0.5], [0.5, 0.3, -0.1], [1.2, 0, -1]])
PRINTED = {"abs": 6e-8}


def tensors(*arrays):
    return (torch.as_tensor(array, dtype=torch.float64) for array in arrays)


def policy_loss(advantages):
    tables = tensors(LOG_PROBS, OLD_LOG_PROBS, advantages)
    return losses.clipped_surrogate(*tables, clip_coef=0.2).item()


def test_golden_policy_loss():
    assert policy_loss(ADVANTAGES) == pytest.approx(-0.5262927, **PRINTED)


def test_golden_policy_loss_of_standardized_advantages():
    standardized = losses.standardize(*tensors(ADVANTAGES)).numpy()
    assert standardized == pytest.approx([0.453921, -0.635489, 1.180194, -0.998625], abs=6e-7)
    assert policy_loss(standardized) == pytest.approx(-0.1027189, **PRINTED)


def test_golden_clip_fraction():
    assert losses.clip_fraction(*tensors(LOG_PROBS, OLD_LOG_PROBS), 0.2).item() == 0.5


def test_golden_kl_is_estimator_k3_and_not_k1():
    k1 = np.mean(OLD_LOG_PROBS - LOG_PROBS)
    kl = losses.approximate_kl(*tensors(LOG_PROBS, OLD_LOG_PROBS)).item()
    assert k1 == pytest.approx(-0.125)
    assert kl == pytest.approx(0.0899355, **PRINTED)


def test_kl_is_exact_where_samples_are_in_proportion():
    behaviour, policy = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.5, 0.25])
    samples = [0, 0, 1, 2]
    kl = losses.approximate_kl(*tensors(np.log(policy[samples]), np.log(behaviour[samples])))
    assert kl.item() == pytest.approx(0.5 * math.log(2) - 0.25 * math.log(2))


def test_golden_value_loss_with_and_without_clipping():
    values = list(tensors(VALUES, OLD_VALUES, RETURNS))
    assert losses.value_loss(*values, clip_coef=0.2).item() == pytest.approx(0.13)
    assert losses.value_loss(*values, clip_coef=None).item() == pytest.approx(0.055)


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
    assert log_probs.grad.item() == pytest.approx(gradient)


def test_policy_gradient_is_zero_where_a_clipped_ratio_overflows():
    log_probs = torch.tensor([200.0], requires_grad=True)
    losses.clipped_surrogate(log_probs, torch.zeros(1), torch.ones(1), clip_coef=0.2).backward()
    assert log_probs.grad.item() == 0


def test_value_gradient_is_zero_where_a_value_has_moved_enough():
    values = torch.tensor([1.0], requires_grad=True)
    losses.value_loss(values, torch.tensor([0.5]), torch.tensor([1.2]), clip_coef=0.2).backward()
    assert values.grad.item() == 0


def test_extreme_log_probs_enter_as_their_difference():
    log_probs = torch.tensor([-200.0, 200.0], requires_grad=True)
    loss = losses.clipped_surrogate(
        log_probs, log_probs.detach(), torch.tensor([3.0, 5.0]), clip_coef=0.2
    )
    loss.backward()
    assert loss.item() == -(3 + 5) / 2
    assert log_probs.grad.tolist() == [-3 / 2, -5 / 2]
    assert losses.approximate_kl(log_probs, log_probs).item() == 0


def test_a_single_advantage_stays_and_equal_ones_become_zero():
    assert losses.standardize(torch.tensor([3.0])).tolist() == [3]
    assert losses.standardize(torch.full((4,), 3.0)).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("values", "returns", "expected"),
    [
        pytest.param([1, 2, 4], [1, 2, 4], 1, id="perfect"),
        pytest.param([5, 5, 5], [1, 2, 4], 0, id="constant-values"),
        pytest.param([0, 1], [0, 2], 1 - 0.5 / 2, id="variance-0.5-left-of-2"),
        pytest.param([1, 0], [0, 1], 1 - 2 / 0.5, id="worse-than-constant"),
        pytest.param([1, 2, 4], [3, 3, 3], 0, id="constant-returns"),
        pytest.param([1], [2], 0, id="one-return"),
    ],
)
@pytest.mark.filterwarnings(r"ignore:var\(\). degrees of freedom")
def test_explained_variance(values, returns, expected):
    found = losses.explained_variance(*tensors(values, returns))
    assert found.item() == pytest.approx(expected)
