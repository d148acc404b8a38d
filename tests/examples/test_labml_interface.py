"""Losses and advantages by the interfaces of labml's implementation, on golden numbers."""

import numpy as np
import pytest
import torch

from examples.labml_interface import GAE, ClippedPPOLoss, ClippedValueFunctionLoss

LOG_PROBS, OLD_LOG_PROBS = torch.tensor(
    [[-0.5, -1, -0.2, -2], [-0.6, -0.7, -0.9, -2]], dtype=torch.float64
)
ADVANTAGES = torch.tensor([1, -0.5, 2, -1], dtype=torch.float64)
VALUES, OLD_VALUES, RETURNS = torch.tensor(
    [[1, 0.2, -0.5], [0.5, 0.3, -0.1], [1.2, 0, -1]], dtype=torch.float64
)
REWARDS, FIVE_VALUES = np.array([[1, 0, 2, -1, 0.5]]), np.array([[0.5, 0.4, 0.3, 0.2, 0.1, 0.7]])
NEVER, AT_2 = np.zeros((1, 5), np.bool_), np.array([[0, 0, 1, 0, 0]], np.bool_)
UNBROKEN, BROKEN = (
    [2.417229, 1.617468, 1.829312, -0.073033, 1.093],
    [2.302847, 1.495850, 1.7, -0.073033, 1.093],
)


def test_golden_policy_loss_and_clip_fraction() -> None:
    loss = ClippedPPOLoss()
    assert loss(LOG_PROBS, OLD_LOG_PROBS, ADVANTAGES, 0.2).item() == pytest.approx(
        -0.5262927, abs=6e-8
    )
    assert loss.clip_fraction == 0.5
    assert type(loss.clip_fraction) is float
    loss(OLD_LOG_PROBS, OLD_LOG_PROBS, ADVANTAGES, 0.2)
    assert loss.clip_fraction == 0


def test_golden_value_loss() -> None:
    assert ClippedValueFunctionLoss()(VALUES, OLD_VALUES, RETURNS, 0.2).item() == pytest.approx(
        0.13
    )
    unclipped = (0.2**2 + 0.2**2 + 0.5**2) / 3 / 2
    assert ClippedValueFunctionLoss()(VALUES, OLD_VALUES, RETURNS, 10).item() == pytest.approx(
        unclipped
    )


def test_golden_advantages() -> None:
    """Each worker is a row of its own."""
    gae = GAE(2, 5, 0.99, 0.95)
    rewards, values = np.repeat(REWARDS, 2, axis=0), np.repeat(FIVE_VALUES, 2, axis=0)
    for done in (np.concatenate([NEVER, AT_2]), np.concatenate([NEVER, AT_2]).astype(np.float32)):
        np.testing.assert_allclose(gae(done, rewards, values), [UNBROKEN, BROKEN], atol=6e-7)


def test_the_last_step_is_bootstrapped_from_the_value_after_it_unless_it_is_done() -> None:
    gae, values = GAE(1, 2, 0.5, 1.0), np.array([[1.0, 2.0, 8.0]])
    rewards = np.array([[4.0, 6.0]])
    np.testing.assert_allclose(
        gae(np.array([[0, 0]]), rewards, values), [[4 + 3 + 2 - 1, 6 + 4 - 2]]
    )
    np.testing.assert_allclose(gae(np.array([[0, 1]]), rewards, values), [[4 + 3 - 1, 6 - 2]])
