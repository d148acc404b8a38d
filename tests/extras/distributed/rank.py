"""A rank of test_distributed.py, in a process of its own: python -m tests.extras.distributed.rank
FOLDER."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from ppo.algorithm.learner import Learner
from ppo.components import make_learner
from ppo.config.config import Config
from ppo.envs.normalize import RunningMeanStd
from ppo.errors import ConfigError
from ppo.extras.distributed.ranks import RanksDiverged, SameWeights
from ppo.peers import Peers, join_peers
from ppo.trainer import train


def numbers(rank: int) -> np.ndarray:
    """Return a rank's samples (n, 3), fewer in rank 0."""
    return np.random.default_rng(rank).normal(100.0, 3.0, (10 + 7 * rank, 3))


def fail() -> None:
    raise ConfigError("no such thing")


def are_same(peers: Peers, weights: torch.Tensor) -> bool:
    """Return whether all ranks have the same weights."""
    parts: Any = SimpleNamespace(peers=peers, learner=SimpleNamespace(weights=weights))
    try:
        return not SameWeights(parts).state_dict()
    except RanksDiverged:
        return False


def exchanges(peers: Peers, rank: int) -> dict[str, Any]:
    """Exchange data in all ways; return what came of it."""
    statistics = RunningMeanStd((3,))
    statistics.update(numbers(rank), peers.gather)
    gradients = torch.full((4,), float(rank + 1))
    metrics = peers.average(gradients, {"loss": torch.tensor(3.0), "norm": float(rank)})
    large = torch.full((200_000,), float(rank + 1))
    peers.average(large, {"loss": 0.0})
    try:
        peers.call_in_first(fail)
    except ConfigError as error:
        failed = [str(error), error.is_reported]
    return {
        "failed": failed,
        "moments": [array.tolist() for array in vars(statistics).values()],
        "gradients": gradients.tolist(),
        "metrics": metrics,
        "large": large.unique().tolist(),
        "gathered": peers.gather(rank),
        "told": peers.call_in_first(lambda: f"from {rank}"),
        "same": [are_same(peers, torch.full((3,), 1 + d * rank)) for d in (0, 1e-7)],
        "seconds": [peers.metrics()["seconds_exchanging"] > 0, peers.metrics()],
    }


def weights(folder: Path) -> list[float]:
    """Train for five iterations, by an optimizer of torch, which imports more of it while the ranks
    are joined; return the model's weights."""
    learners = []

    def make(model: Any, config: Config, peers: Any) -> Learner:
        learners.append(make_learner(model, config, peers))
        return learners[-1]

    sizes = {"num_envs": 4, "num_steps": 32, "num_iterations": 5, "eval_episodes": 0}
    quiet = {"logger": "none", "report": False, "run_dir": str(folder / "run")}
    flags = {"env_name": "CartPole-v1", "model": "mlp", "optimizer": "torch.optim:SGD"}
    train(Config(**flags, **sizes, **quiet), learner=make)
    return learners[0].weights.tolist()


def threads() -> list[str]:
    """Return the names of this process's threads."""
    return [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]


if __name__ == "__main__":
    folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    with join_peers() as peers:
        found = exchanges(peers, rank)
    found |= {"weights": weights(folder), "left": [x for x in threads() if "gloo" in x]}
    (folder / f"{rank}.json").write_text(json.dumps(found))
