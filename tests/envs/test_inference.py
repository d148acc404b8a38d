"""Acting by workers or by the learner (--inference)."""

import numpy as np
import pytest

from ppo.envs.pool import WorkerPool
from tests.running import (
    copy_tables,
    learn,
    make_components,
)

WORLDS = {
    "mlp": ("Counting-v0", {"num_envs": 5}),
    "lstm": (
        "Counting-v0",
        {"model": "lstm", "hidden_size": 8, "num_envs": 5, "num_minibatches": 2},
    ),
    "one": ("Counting-v0", {"num_envs": 1}),
    "masks": ("Masked-v0", {"num_envs": 3}),
    "cnn": ("PongNoFrameskip-v4", {"model": "cnn", "num_envs": 3, "precision": "float32"}),
}


def rollouts(name: str, inference: str, num_workers: int) -> list[dict[str, np.ndarray]]:
    """Return the tables of three rollouts, with learning between them."""
    env_name, values = WORLDS[name]
    sizes = {"num_steps": 8, "total_steps": 10**5, "num_minibatches": 2, "num_epochs": 1}
    parts = make_components(env_name, **{**sizes, **values}, inference=inference, seed=3)
    tables = []
    with WorkerPool(
        parts.make_worker, parts.config.num_envs, num_workers, sampler=parts.sampler
    ) as workers:
        for iteration in (1, 2, 3):
            learn(parts, workers.collect(iteration))
            tables.append(copy_tables(parts.rollout))
    return tables


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("name", "num_workers"),
    [(name, count) for name in WORLDS for count in (0, 1, 2) if (name, count) != ("one", 2)],
)
def test_the_learner_acts_as_workers_do(name: str, num_workers: int) -> None:
    for ours, theirs in zip(
        rollouts(name, "learner", num_workers), rollouts(name, "worker", 0), strict=True
    ):
        assert ours.keys() == theirs.keys()
        for table, expected in theirs.items():
            np.testing.assert_allclose(ours[table], expected, atol=1e-4, err_msg=table)
