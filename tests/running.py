"""Running the trainer in tests: in this process by its parts, or as a user does, by main.py."""

import csv
import json
import multiprocessing
import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from ppo.algorithm.rollout import Rollout
from ppo.components import Components
from ppo.config.config import Config
from ppo.config.settings import settings_of
from ppo.envs import make
from ppo.envs.heartbeat import SHAPE
from ppo.envs.probe import Spaces, probe_all
from ppo.envs.shared_memory import SharedArray
from ppo.envs.worker import RolloutInfo, Worker
from ppo.guard import Deadline
from ppo.models import make_model
from ppo.run.checkpoint import State
from ppo.run.summary import Evaluation, RunSummary

ROOT = Path(__file__).parents[1]
Call = Callable[..., tuple[int, str, str]]  # of the fixture call
PLAIN = {
    "normalize_observations": False,
    "normalize_rewards": False,
    "clip_value_coef": None,
    "num_workers": 0,
}
CARTPOLE = {
    "env_name": "CartPole-v1",
    "num_envs": 4,
    "num_steps": 64,
    "total_steps": 2048,
    "num_workers": 0,
    "eval_episodes": 6,
    "verbose": 0,
    "report": False,
    "learning_rate": 1e-3,
}
TINY = {
    **CARTPOLE,
    "num_envs": 2,
    "num_steps": 8,
    "eval_episodes": 0,
    "num_minibatches": 1,
    "num_epochs": 1,
}
# A run of ten iterations by main.py, whose first flag names the environment.
BRIEF = (
    "--env_name=CartPole-v1",
    "--preset=none",
    "--num_envs=4",
    "--num_steps=64",
    "--num_workers=0",
    "--total_steps=2560",
    "--eval_episodes=2",
)
TIMES = {
    "seconds",
    "steps_per_second",
    "seconds_collecting",
    "seconds_learning",
    "seconds_exchanging",
}


def make_env(env_name: str, **flags: Any) -> Any:
    """Make an environment by the defaults of flags, with which images are not skipped."""
    return make.make_env(environment_flags(env_name, **flags))


def spaces_of(env_name: str, **flags: Any) -> Spaces:
    """Return the spaces of an environment that make_env makes."""
    return probe_all(environment_flags(env_name, **flags))


def environment_flags(env_name: str, **flags: Any) -> SimpleNamespace:
    """Return what an environment is made by, with keyword arguments that may be any objects."""
    values = {**vars(Config()), "env_name": env_name, "frame_skip": 1, **flags}
    return SimpleNamespace(**values)


def make_network(
    observation_space: Any,
    action_space: Any,
    seed: int = 0,
    in_bfloat16: bool = False,
    **values: Any,
) -> Any:
    """Make a model, by default with separate trunks of 64 hidden units for policy and value."""
    torch.manual_seed(seed)
    defaults = {
        "model": "mlp",
        "hidden_size": 64,
        "share_trunk": False,
        "log_std_init": 0.0,
        "precision": "bfloat16" if in_bfloat16 else "float32",
    }
    return make_model(Config(**{**defaults, **values}), observation_space, action_space)


def make_components(env_name: str, **values: Any) -> Components:
    """Make the parts of a run, without normalisation or worker processes unless asked for."""
    name = f"tests.environments:{env_name}" if "NoFrameskip" not in env_name else env_name
    return Components(settings_of(Config(**{"env_name": name, **PLAIN, **values})))


def worker_of(parts: Components, num_envs: int) -> Worker:
    """Make a worker for the first environments of a run, in this process."""
    heartbeat = SharedArray(SHAPE, np.int64)
    return parts.make_worker(env_indices=range(num_envs), heartbeat=heartbeat)


def deadlines(step: float, reset: float) -> Mapping[str, Deadline]:
    """Return the deadlines of calls that so many seconds lead to."""
    from ppo.extras.supervision.isolation import Isolation

    return Isolation().deadlines(SimpleNamespace(step_timeout=step, reset_timeout=reset))


def learn(parts: Components, info: RolloutInfo) -> dict[str, Any]:
    """Learn from the next rollout, which workers have collected, as ppo.trainer.train does."""
    rollout = parts.finish_collect(parts.iteration + 1, info)
    batch = parts.make_batch(rollout)
    return parts.update(rollout, batch)


def copy_tables(rollout: Rollout) -> dict[str, np.ndarray]:
    """Copy the shared tables of a rollout."""
    tables = vars(rollout).items()
    return {name: table.copy() for name, table in tables if isinstance(table, np.ndarray)}


def trained(env_name: str, **values: Any) -> Components:
    """Train to the end, and return the parts of the run."""
    parts = make_components(env_name, **values)
    with parts.make_pool() as workers:
        for iteration in range(1, parts.config.iterations + 1):
            learn(parts, workers.collect(iteration))
    return parts


def run_main(*arguments: str, **options: Any) -> subprocess.CompletedProcess:
    """Run main.py in a process of its own."""
    return subprocess.run(
        command(*arguments),
        **{"cwd": ROOT, "capture_output": True, "text": True, "timeout": 120, **options},
    )


def command(*arguments: str) -> list[str]:
    """Return a command line of main.py, by default without a report, which takes a second."""
    trains = arguments[0].startswith("-") and not {"--report", "--help"} & {*arguments}
    report = ["--report=False"] if trains else []
    return [sys.executable, str(ROOT / "main.py"), *arguments, *report]


def at_once(function: Callable[..., int], *arguments: Any) -> list[int]:
    """Call a function with each argument at once, in copies of this process; return the results."""
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=lambda one: sys.exit(function(one)), args=(one,))
        for one in arguments
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [process.exitcode or 0 for process in processes]


def metrics(folder: Path) -> list[dict[str, str]]:
    """Return the rows of a run's metrics.csv without times."""
    with (folder / "metrics.csv").open() as file:
        return [
            {name: value for name, value in row.items() if name not in TIMES}
            for row in csv.DictReader(file)
        ]


def children() -> set[int]:
    """Return the ids of this process's children."""
    path = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    return {int(child) for child in path.read_text().split()}


def on_terminal(*arguments: str) -> str:
    """Run main.py on a terminal, to its end without an error, and return what that was sent."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(
        command(*arguments), cwd=ROOT, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
    assert process.wait(timeout=20) == 0
    return shown.decode()


def run_summary(steps: int = 0, returns: Sequence[float] = ()) -> RunSummary:
    """Return the summary of a run that came to its end, after an evaluation with these returns."""
    evaluation = Evaluation(
        episodes=len(returns),
        mean=float(np.mean(returns)) if returns else None,
        std=float(np.std(returns)) if returns else None,
        returns=[*returns],
        lengths=[1] * len(returns),
        unfinished=0,
        env={},
    )
    return RunSummary(
        env_name="Some-v0",
        seed=0,
        steps=steps,
        seconds=1.0,
        steps_per_second=float(steps),
        stopped=None,
        episodes=0,
        mean_return=None,
        evaluation=evaluation,
        checkpoint="",
    )


def assert_same(one: State, other: State) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        if isinstance(value, torch.Tensor):
            assert value.dtype == other[name].dtype, name
            assert torch.equal(value, other[name]), name
        else:
            assert value == other[name], name


def process_group(stat: Path) -> int | None:
    """Return the group of a process by its file in /proc; None if it is dead or a zombie."""
    try:
        state, _, group = stat.read_text().rpartition(")")[2].split()[:3]
    except OSError:
        return None
    return None if state == "Z" else int(group)


def nothing_left(group: int) -> bool:
    """Whether all processes of a group end within a second of its leader's end."""
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        if group not in map(process_group, Path("/proc").glob("[0-9]*/stat")):
            return True
        time.sleep(0.01)
    return False


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (folder / "events.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == kind]


def saved(folder: Path) -> list[Path]:
    """The checkpoints of a run, the oldest first."""
    return sorted((folder / "checkpoints").glob("0*.safetensors"))


def start(*arguments: str, **options: Any) -> subprocess.Popen:
    """main.py as the leader of a process group of its own."""
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        command(*arguments), cwd=ROOT, start_new_session=True, **pipes, **options
    )


def wait_until(is_so: Callable[[], object], process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < deadline
        time.sleep(0.005)


def num_rows(folder: Path) -> int:
    return len(metrics(folder)) if (folder / "metrics.csv").exists() else 0
