"""Runs on a GPU: python -m pytest -m cuda"""

import numpy as np
import pytest
import torch

from ppo import load_policy
from tests.running import iterate, rows, running, train
from tests.worlds import Counting, Film

DEVICE = "cuda"
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]

KINDS = {
    "mlp": (Counting, {}),
    "lstm": (Counting, {"model": "lstm"}),
    "images": (Film, {"screen_size": 36, "precision": "float32"}),
    "images, bfloat16": (Film, {"screen_size": 36, "precision": "bfloat16"}),
    "workers act": (Film, {"screen_size": 36, "inference": "worker", "num_workers": 2}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_trains_resumes_and_plays_on_the_cpu(kind, tmp_path):
    env, flags = KINDS[kind]
    for iterations in (2, 4):
        train(env, tmp_path, iterations, **flags, device=DEVICE)
    assert [row["iteration"] for row in rows(tmp_path)] == ["1", "2", "3", "4"]
    assert load_policy(tmp_path).evaluate(2).returns


@pytest.mark.parametrize("kind", ["mlp", "lstm", "images"])
def test_gradient_steps_are_those_of_the_cpu(kind, tmp_path):
    """Two iterations of the same rollouts lead to nearly the same weights."""
    env, flags = KINDS[kind]
    weights = []
    for device in ("cpu", DEVICE):
        folder = tmp_path / str(len(weights))
        with running(env, folder, **flags, inference="worker", device=device) as run:
            iterate(run, 2)
            weights.append(run.learner.weights.cpu().numpy())
    np.testing.assert_allclose(*weights, atol=1e-4)
