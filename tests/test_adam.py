"""Adam against torch's own and its paper."""

from typing import Any

import numpy as np
import torch
from torch import nn

from ppo.optimizer import EPSILON, Adam


def walk(optimizer: Any, gradients: Any, count: int, seed: int) -> None:
    """Step by random gradients, at a rate that changes."""
    generator = torch.Generator().manual_seed(seed)
    for number in range(count):
        gradients.copy_(torch.randn(gradients.shape, generator=generator))
        optimizer.param_groups[0]["lr"] = 1e-3 / (number + 1)
        optimizer.step()


def parameter_of(weights: Any) -> tuple[nn.Parameter, Any]:
    """Return weights as a parameter, and its gradient."""
    parameter = nn.Parameter(weights)
    parameter.grad = torch.zeros_like(weights)
    return parameter, parameter.grad


def test_steps_and_state_have_the_bits_of_torchs_fused_adam():
    start = torch.randn(1001, generator=torch.Generator().manual_seed(0))
    ours, gradients = parameter_of(start.clone())
    theirs, its_gradients = parameter_of(start.clone())
    one = Adam(ours, 1e-3)
    other = torch.optim.Adam([theirs], lr=1e-3, eps=EPSILON, fused=True)
    walk(one, gradients, 5, seed=1)
    walk(other, its_gradients, 5, seed=1)
    assert torch.equal(ours, theirs)
    mine, its = (optimizer.state_dict()["state"][0] for optimizer in (one, other))
    assert mine.keys() == its.keys()
    assert all(torch.equal(mine[name], its[name]) for name in its)
    again = Adam(ours, 1e-3)
    again.load_state_dict(other.state_dict())
    walk(other, its_gradients, 2, seed=2)
    walk(again, gradients, 2, seed=2)
    assert torch.equal(ours, theirs)


def test_a_step_is_that_of_the_paper():
    weights, gradients = parameter_of(torch.tensor([1.0, -2.0]).double())
    optimizer = Adam(weights, 0.1)
    expected, m, v = np.array([1.0, -2.0]), np.zeros(2), np.zeros(2)
    for t, gradient in enumerate(([0.5, -1.0], [2.0, 0.1], [-0.3, 0.0]), 1):
        gradients.copy_(torch.tensor(gradient))
        optimizer.step()
        m, v = 0.9 * m + 0.1 * np.array(gradient), 0.999 * v + 0.001 * np.array(gradient) ** 2
        expected -= 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-5)
    np.testing.assert_allclose(weights.data, expected, rtol=1e-6)
