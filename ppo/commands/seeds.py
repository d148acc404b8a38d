"""The same run by several seeds, for one says little about how good a configuration is."""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from ppo.analysis.plots import draw
from ppo.analysis.statistics import confidence_interval, interquartile_mean
from ppo.config.config import Config
from ppo.errors import ConfigError
from ppo.run.reader import read_run
from ppo.system.files import folder_name
from ppo.system.hardware import available_cores
from ppo.system.signals import URGENT


class SeedFailed(Exception):
    """A run ended with an error, which it has told; the message says which."""

    def __init__(self, folder: Path, exit_code: int) -> None:
        super().__init__(f"the run in {folder} ended with exit code {exit_code}")
        self.exit_code = exit_code if exit_code > 0 else 1


def train_seeds(given: Mapping[str, Any], config: Config) -> None:
    """Train as a command line says, in a process for each of config.seeds seeds, side by side where cores are left;
    draw all curves as one, and print a table. given: the flags. Raises ConfigError if there is something in the folder,
    SeedFailed."""
    name = config.name or f"{config.env_name}-{config.seeds}seeds-{datetime.now():%Y%m%d-%H%M%S-%f}"
    parent = Path(config.run_dir or f"runs/{folder_name(name)}")
    if config.resume not in (None, "auto"):
        raise ConfigError("--resume and --seeds: give one of them, or --resume=auto")
    if parent.exists() and any(parent.iterdir()) and config.resume is None:
        raise ConfigError(
            f"the folder {parent} is not empty, and no run is overwritten: choose another by --run_dir"
        )
    cores = available_cores()
    busy = (
        config.num_workers if isinstance(config.num_workers, int) else min(cores, config.num_envs)
    )
    flags = {
        name: value
        for name, value in given.items()
        if name not in ("seeds", "seed", "run_dir", "name")
    }
    folders = [parent / f"s{seed}" for seed in range(config.seed, config.seed + config.seeds)]

    processes: list[subprocess.Popen] = []

    def train(folder: Path) -> None:
        own = {
            **flags,
            "seed": folder.name.removeprefix("s"),
            "run_dir": folder,
            "name": f"{name}-{folder.name}",
        }
        own["num_workers"] = busy  # the same for all of them
        command = [
            sys.executable,
            sys.argv[0],
            *(f"--{flag}={value}" for flag, value in own.items()),
        ]
        print(f"seed {own['seed']}: {folder}", flush=True)
        process = subprocess.Popen(command)
        processes.append(process)
        if code := process.wait():
            raise SeedFailed(folder, code)

    def pass_on(number: int, frame: Any) -> None:
        for process in processes:
            process.send_signal(number)  # nothing happens to those that have ended

    for number in URGENT:
        signal.signal(number, pass_on)
    pool = ThreadPoolExecutor(max(1, cores // max(1, busy)))
    try:
        for _ in pool.map(train, folders):
            pass
    finally:
        pool.shutdown(cancel_futures=True)
    draw([read_run(folder) for folder in folders], parent / "curves.png")
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in folders]
    print("\nseed   last 100   evaluation   seconds")
    for summary in summaries:
        returns = f"{_text(summary['mean_return']):<10} {_text(summary['evaluation']['mean']):<12}"
        print(f"{summary['seed']:<6} {returns} {summary['seconds']:.0f}")
    for label, values in (
        ("last 100", [summary["mean_return"] for summary in summaries]),
        ("evaluation", [summary["evaluation"]["mean"] for summary in summaries]),
    ):
        if None not in values:
            interval = confidence_interval(values, interquartile_mean)
            spread = (
                "" if interval is None else " (95 % interval {:.1f} to {:.1f})".format(*interval)
            )
            print(f"{label}: interquartile mean {interquartile_mean(np.array(values)):.1f}{spread}")
    print(f"picture: {parent / 'curves.png'}")


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
