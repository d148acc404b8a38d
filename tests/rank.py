"""A rank of tests/test_distributed.py, in a process of its own: python -m tests.rank FOLDER."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ppo.algorithm.learner import Learner
from ppo.algorithm.minibatches import Minibatch
from ppo.components import make_learner
from ppo.config.config import Config
from ppo.errors import ConfigError, RanksDiverged
from ppo.system.distributed import join_ranks
from ppo.trainer import train


def numbers(rank: int) -> np.ndarray:
    """Return a rank's samples (n, 3), fewer in rank 0."""
    return np.random.default_rng(rank).normal(100.0, 3.0, (10 + 7 * rank, 3))


def fail() -> None:
    raise ConfigError("no such thing")


def exchanges(rank: int) -> dict[str, Any]:
    """Exchange data in all ways; return what came of it, and leave the group."""
    events: list[Any] = []
    with join_ranks() as ranks:
        own = numbers(rank)
        ranks.forward_events(lambda *event, **details: events.append([*event, details]))(
            "worker_lost", "gone", worker=3
        )
        count, mean, variance = ranks.all_reduce_moments((len(own), own.mean(0), own.var(0)))
        column = torch.from_numpy(own[:, 0]).float()
        half = Minibatch(np.arange(5), 0.5)
        none = Minibatch(np.arange(1), 0.0)
        moments = ranks.minibatch_moments(column, [half, half if rank else none])
        gradients = torch.full((4,), float(rank + 1))
        metrics = ranks.all_reduce_gradients(
            gradients, {"loss": torch.tensor(3.0), "norm": float(rank)}, (0.25, 0.75)[rank]
        )
        large = torch.full((200_000,), float(rank + 1))
        ranks.all_reduce_gradients(large, {"loss": 0.0}, 0.5)
        nothing = torch.full((4,), float("nan") if rank else 1.0)
        ranks.all_reduce_gradients(
            nothing, {"loss": 0.0}, 1.0 - rank
        )  # whoever has no share, has none of its faults either
        gathered = ranks.gather(rank)
        told = ranks.broadcast_from_rank0(lambda: f"from {rank}")
        try:
            ranks.broadcast_from_rank0(fail)
        except ConfigError as error:
            failed = [str(error), hasattr(error, "is_reported")]
        ranks.check_same_weights(torch.ones(3))
        try:
            ranks.check_same_weights(torch.full((3,), 1 + 1e-7 * rank))
            same = True
        except RanksDiverged:
            same = False
        found = {"pooled": [int(count), mean.tolist(), variance.tolist()], "moments": moments}
        found |= {
            "failed": failed,
            "variance": ranks.variance(column[None]).item(),
            "gradients": gradients.tolist(),
            "metrics": metrics,
        }
        return found | {
            "gathered": gathered,
            "told": told,
            "same": same,
            "large": large.unique().tolist(),
            "nothing": nothing.tolist(),
            "events": events,
        }


def weights(folder: Path) -> list[float]:
    """Train for five iterations; return the model's weights."""
    learners = []

    def make(model: Any, config: Config, ranks: Any) -> Learner:
        learners.append(make_learner(model, config, ranks))
        return learners[-1]

    sizes = {"num_envs": 4, "num_steps": 32, "num_iterations": 5, "eval_episodes": 0}
    quiet = {"logger": "none", "report": False, "run_dir": str(folder / "run")}
    train(Config(env_name="CartPole-v1", model="mlp", **sizes, **quiet), learner=make)
    return learners[0].weights.tolist()


if __name__ == "__main__":
    folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    found = exchanges(rank)
    (folder / f"{rank}.json").write_text(json.dumps(found | {"weights": weights(folder)}))
