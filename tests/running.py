"""Running the trainer in tests: in this process by its parts, or as a user does, by main.py."""

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ppo.config.config import Config
from ppo.config.resolve import resolve
from ppo.envs.pool import WorkerPool
from ppo.models import make_model
from ppo.trainer import Training

ROOT = Path(__file__).parents[1]
PLAIN = {
    "normalize_observations": False,
    "normalize_rewards": False,
    "clip_value_coef": None,
    "num_workers": 0,
}
TIMES = {
    "seconds",
    "steps_per_second",
    "seconds_collecting",
    "seconds_learning",
    "seconds_exchanging",
}


def make_network(
    observation_space: Any,
    action_space: Any,
    seed: int = 0,
    in_bfloat16: bool = False,
    **values: Any,
) -> Any:
    """A model, by default of 64 hidden units in trunks of their own for policy and value."""
    resolved = {
        "model": "mlp",
        "hidden_size": 64,
        "share_trunk": False,
        "log_std_init": 0.0,
        **values,
    }
    return make_model(
        Config(**resolved),
        seed=seed,
        observation_space=observation_space,
        action_space=action_space,
        in_bfloat16=in_bfloat16,
    )


def make_training(env_name: str, **values: Any) -> Training:
    """A run that has not begun, without normalisation or worker processes unless asked for."""
    name = f"tests.environments:{env_name}" if "NoFrameskip" not in env_name else env_name
    return Training(*resolve(Config(**{"env_name": name, **PLAIN, **values})))


def trained(env_name: str, **values: Any) -> Training:
    """A run that has been trained to its end."""
    training = make_training(env_name, **values)
    config = training.config
    with WorkerPool(training.make_worker, config.num_envs, int(config.num_workers)) as workers:
        for iteration in range(1, config.iterations + 1):
            training.learn(workers.collect(iteration))
    return training


def run_main(*arguments: str, **options: Any) -> subprocess.CompletedProcess:
    """main.py in a process of its own."""
    return subprocess.run(
        command(*arguments), cwd=ROOT, capture_output=True, text=True, timeout=120, **options
    )


def command(*arguments: str) -> list[str]:
    """main.py, without a picture of the curve, which takes a second, unless that is asked for."""
    drawn = (
        []
        if {"--report", "--help"} & {*arguments} or not arguments[0].startswith("-")
        else ["--report=False"]
    )
    return [sys.executable, str(ROOT / "main.py"), *arguments, *drawn]


def metrics(folder: Path) -> list[dict[str, str]]:
    """The rows of a run's metrics.csv, times left out."""
    with (folder / "metrics.csv").open() as file:
        return [
            {name: value for name, value in row.items() if name not in TIMES}
            for row in csv.DictReader(file)
        ]


def children() -> set[int]:
    """This process's children."""
    return {
        int(child)
        for child in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    }
