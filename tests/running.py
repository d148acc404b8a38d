"""Make runs, learners and networks of small environments, in this process."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete

from ppo.callbacks import Callback
from ppo.checkpoint import load
from ppo.config import Config
from ppo.envs.make import EnvMaker, Spaces
from ppo.envs.pool import WorkerPool
from ppo.folder import RunFolder
from ppo.learner import Learner
from ppo.loggers import MetricsFile, read_rows
from ppo.models import make_model
from ppo.models.actor_critic import ActorCritic
from ppo.models.distributions import policy_head
from ppo.process import StopSignals, training_process
from ppo.run import Run
from ppo.settings import resolve, settle
from ppo.trainer import run_training

ROOT = Path(__file__).parents[1]
VECTOR, CHOICE = Box(-1, 1, (3,)), Discrete(4)
SMALL: dict[str, Any] = {
    "num_envs": 4,
    "num_steps": 16,
    "num_minibatches": 2,
    "num_epochs": 2,
    "hidden_size": 8,
    "num_workers": 0,
    "normalize_observations": False,
    "normalize_rewards": False,
    "eval_episodes": 0,
    "logger": "none",
    "preset": "none",
}


def make_spaces(observes: Any = VECTOR, acts: Any = CHOICE, **flags: Any) -> Spaces:
    """Return spaces of an environment that is never made, with settings without "auto"."""
    has_masks = flags.pop("has_masks", False)
    config = Config(**{"total_steps": 10**6, **flags})
    return resolve(config, Spaces(EnvMaker(config), observes, acts, has_masks))


def make_network(observes: Any = VECTOR, acts: Any = CHOICE, **flags: Any) -> Any:
    return make_model(make_spaces(observes, acts, **flags))


def disturb(model: Any, deviation: float = 0.3, seed: int = 0) -> Any:
    """Move weights far from their first, in which biases are zero and policies nearly uniform."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += deviation * torch.randn(parameter.shape, generator=generator)
    return model


class Slope(Learner):
    """Take the sum of all weights as the loss, so that every gradient is 1, and KLs from a list;
    subtract gradients times the learning rate."""

    kls: Sequence[float] = (0.0,) * 100

    def make_optimizer(self) -> Any:
        return torch.optim.SGD([self.parameter], self.learning_rate)

    def loss(self, minibatch: Any, distribution: Any, values: Any) -> Any:
        self.calls = getattr(self, "calls", 0) + 1
        loss = sum(x.sum() for x in self.model.parameters())
        return loss, {"approx_kl": torch.tensor(self.kls[self.calls - 1])}


class Own(ActorCritic):
    """A network with parts that are frozen, and that nothing reads."""

    def __init__(self, observes: Any, acts: Any, config: Any) -> None:
        super().__init__()
        self.trunk = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.BatchNorm1d(8))
        self.policy_head = policy_head(8, acts, config)
        self.value_head = torch.nn.Linear(8, 1)
        self.frozen = torch.nn.Parameter(torch.full((8,), 0.5), requires_grad=False)
        self.unread = torch.nn.Linear(8, 8)

    def forward(self, observations: Any) -> Any:
        features = self.trunk(observations.float()) + self.frozen
        return self.policy_head(features), self.value_head(features).squeeze(-1)


def make_learner(kind: type[Learner] = Learner, **flags: Any) -> Any:
    spaces = make_spaces(**{**SMALL, "max_grad_norm": 0, **flags})
    return kind(make_model(spaces), spaces)


def make_batch(learner: Learner, num_rows: int = 64, seed: int = 0) -> dict[str, Any]:
    """Return a batch that is as if the present policy had acted."""
    generator = torch.Generator().manual_seed(seed)
    batch = {
        "observations": torch.randn(num_rows, 3, generator=generator),
        "actions": torch.randint(4, (num_rows, 1), generator=generator),
    }
    with torch.no_grad():
        log_probs, values = Learner.evaluate(learner, batch)
    advantages = torch.randn(num_rows, generator=generator)
    found = {"log_probs": log_probs, "values": values, "advantages": advantages}
    return {**batch, **found, "returns": values + advantages}


@contextmanager
def running(
    env: Any, path: Path, callbacks: Sequence[Callback] = (), **flags: Any
) -> Iterator[Run]:
    """Start a run, of which the caller takes the iterations."""
    given = {"env_name": env, "total_steps": 10**6, "run_dir": str(path), **SMALL, **flags}
    settings = settle(given, callbacks)
    config = settings.spaces.config
    with (
        StopSignals() as signals,
        closing(WorkerPool(settings.spaces, signals.urgent)) as pool,
        training_process(1),
        RunFolder(config, None) as folder,
    ):
        run = Run(settings, pool, [*callbacks, MetricsFile()], signals)
        run.start(folder)
        try:
            yield run
        finally:
            run.close()


def iterate(run: Run, count: int = 1) -> dict[str, Any]:
    """Take iterations; return the last one's batch."""
    for _ in range(count):
        batch = run.make_batch(run.collect())
        run.end_iteration(run.update(batch))
    return run.batch


def train(
    env: Any, path: Path, iterations: int, callbacks: Sequence[Callback] = (), **flags: Any
) -> Any:
    """Train, or go on with the run in a folder."""
    flags = {**SMALL, **flags}
    steps = iterations * flags["num_envs"] * flags["num_steps"]
    place = {"resume": "auto", "run_dir": str(path)}
    return run_training({"env_name": env, "total_steps": steps, **place, **flags}, callbacks)


def rows(path: Path) -> list[dict[str, str]]:
    return read_rows(path / "metrics.csv")


def tensors(path: Path) -> dict[str, Any]:
    """Return the numbers of a run's last checkpoint, but for measured times."""
    state = load(path / "checkpoints" / "last.safetensors")
    return {name: x for name, x in state.items() if name not in ("seconds", "config")}


def assert_same_state(path: Path, other: Path) -> None:
    mine, its = tensors(path), tensors(other)
    assert mine.keys() == its.keys()
    for name, value in mine.items():
        same = np.array_equal(value, its[name])
        assert same, name


def python(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, with ppo of this tree."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True
    )
