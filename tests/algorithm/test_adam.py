"""Adam against torch's own."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from ppo.algorithm.adam import Adam
from tests.running import ROOT


def steps(optimizer, weights: nn.Parameter, count: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for number in range(count):
        weights.grad = torch.randn(weights.shape, generator=generator)
        optimizer.param_groups[0]["lr"] = 1e-3 / (number + 1)
        optimizer.step()


def test_steps_and_state_have_the_bits_of_torchs_fused_adam() -> None:
    start = torch.randn(1001, generator=torch.Generator().manual_seed(0))
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    one, other = (
        Adam(ours, lr=1e-3, eps=1e-5),
        torch.optim.Adam([theirs], lr=1e-3, eps=1e-5, fused=True),
    )
    for optimizer, weights in ((one, ours), (other, theirs)):
        steps(optimizer, weights, 5, seed=1)
    assert torch.equal(ours, theirs)
    mine, its = (optimizer.state_dict()["state"][0] for optimizer in (one, other))
    assert mine.keys() == its.keys()
    assert all(torch.equal(mine[name], its[name]) for name in its)
    again = Adam(ours, lr=1e-3, eps=1e-5)
    again.load_state_dict(other.state_dict())
    steps(other, theirs, 2, seed=2)
    steps(again, ours, 2, seed=2)
    assert torch.equal(ours, theirs)


def test_without_the_private_kernel_the_public_function_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = torch.randn(1001, generator=torch.Generator().manual_seed(0))
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    steps(Adam(theirs, lr=1e-3, eps=1e-5), theirs, 5, seed=1)
    monkeypatch.delattr(torch, "_fused_adam_")
    optimizer = Adam(ours, lr=1e-3, eps=1e-5)
    steps(optimizer, ours, 5, seed=1)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)
    assert optimizer.state_dict()["state"][0]["step"] == 5


def test_a_step_is_that_of_the_paper() -> None:
    weights = nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    optimizer, rate, eps = Adam(weights, lr=0.1, eps=1e-5), 0.1, 1e-5
    expected, m, v = np.array([1.0, -2.0]), np.zeros(2), np.zeros(2)
    for t, gradient in enumerate(([0.5, -1.0], [2.0, 0.1], [-0.3, 0.0]), 1):
        weights.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
        m, v = 0.9 * m + 0.1 * np.array(gradient), 0.999 * v + 0.001 * np.array(gradient) ** 2
        expected -= rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + eps)
    np.testing.assert_allclose(weights.detach(), expected, rtol=1e-9)


@pytest.mark.slow
def test_a_learner_does_not_import_torchs_compiler() -> None:
    code = """
import sys
from ppo import Config
from ppo.components import Components
from ppo.config.settings import settings_of
from tests.running import learn, worker_of
config = Config(env_name="CartPole-v1", num_envs=2, num_steps=8, num_workers=0)
parts = Components(settings_of(config))
learn(parts, worker_of(parts, 2).collect(1))
parts.state_dict()
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
