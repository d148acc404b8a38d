"""Train with several seeds: one run says little about how good a configuration is."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from ppo.analysis.plots import draw
from ppo.analysis.statistics import confidence_interval, interquartile_mean
from ppo.commands.shared import interval_text
from ppo.config.config import Config
from ppo.config.flags import Settings, as_arguments
from ppo.errors import ConfigError, Interrupted, PPOError
from ppo.run.reader import read_run
from ppo.system.files import folder_name
from ppo.system.hardware import available_cores
from ppo.system.output import discard
from ppo.system.process import die_with_parent
from ppo.system.signals import StopSignals

SECONDS_BETWEEN_LOOKS = 0.05


class SeedFailed(PPOError):
    """The run of a seed ended with an error, which it has printed."""

    def __init__(self, folder: Path, exit_code: int) -> None:
        super().__init__(f"the run in {folder} ended with exit code {exit_code}")
        self.exit_code = max(exit_code, 1)  # negative after a signal


def train_seeds(given: Settings, config: Config) -> None:
    """Train with each of config.seeds seeds in a process of its own, as many at once as fit.

    Then draw all curves as one, and print a table. given: the flags of the command line. Raises
    ConfigError if the folder is not empty or there are not so many seeds, SeedFailed, Interrupted.
    """
    name = config.name or f"{config.env_name}-{config.seeds}seeds-{datetime.now():%Y%m%d-%H%M%S-%f}"
    parent = Path(config.run_dir or f"runs/{folder_name(name)}")
    if config.is_resumed:
        raise ConfigError("--resume and --seeds: give one of them, or --resume=auto")
    if any(parent.glob("*")) and config.resume is None:
        raise ConfigError(
            f"the folder {parent} is not empty, and no run is overwritten: choose another by "
            "--run_dir"
        )
    replace(config, seed=config.seed + config.seeds - 1)  # is there such a seed?
    cores = available_cores()
    num_workers = min(cores, config.num_envs)
    if config.num_workers != "auto":
        num_workers = config.num_workers
    program = [sys.argv[0]]
    if Path(sys.argv[0]).name == "__main__.py":
        program = ["-m", "ppo"]
    commands = {}
    for seed in range(config.seed, config.seed + config.seeds):
        folder = parent / f"s{seed}"
        flags = {
            **given,
            "seeds": 1,
            "seed": seed,
            "run_dir": folder,
            "name": f"{name}-s{seed}",
            "num_workers": num_workers,  # the same for all of them
        }
        commands[folder] = [sys.executable, *program, *as_arguments(flags)]
    _run_side_by_side(commands, max(1, cores // max(1, num_workers)))
    draw([read_run(folder) for folder in commands], parent / "curves.png")
    _print_table([json.loads((folder / "summary.json").read_text()) for folder in commands])
    print(f"picture: {parent / 'curves.png'}")


def _run_side_by_side(commands: Mapping[Path, list[str]], at_once: int) -> None:
    """Run commands, and pass signals on to them; after one, or a failure, no other is begun.

    Raises SeedFailed, and Interrupted after a signal. The processes die with this one.
    """
    waiting = list(commands)
    running: dict[Path, subprocess.Popen[bytes]] = {}
    failure: PPOError | None = None
    sent: signal.Signals | None = None
    with StopSignals() as stop:
        while running or waiting:
            if stop.received and stop.received != sent:
                sent = stop.received
                failure = Interrupted(
                    sent, "stopped the runs of all seeds: --resume=auto continues"
                )
                for process in running.values():
                    process.send_signal(sent)
            for folder, process in list(running.items()):
                if exit_code := process.poll():
                    failure = failure or SeedFailed(folder, exit_code)
                if exit_code is not None:
                    del running[folder]
            if failure:
                waiting.clear()
            while waiting and len(running) < at_once:
                folder = waiting.pop(0)
                try:
                    print(f"seed {folder.name.removeprefix('s')}: {folder}", flush=True)
                except OSError:  # nobody reads it any more
                    discard(sys.stdout)
                # In a session of its own, Ctrl-C reaches it once only: from here.
                running[folder] = subprocess.Popen(
                    commands[folder], start_new_session=True, preexec_fn=die_with_parent
                )
            time.sleep(SECONDS_BETWEEN_LOOKS)
    if failure:
        raise failure


def _print_table(summaries: list[dict[str, Any]]) -> None:
    """Print the returns of each run, "-" where no episode ended, and their interquartile means."""
    rows = [[x["mean_return"], x["evaluation"]["mean"], x["seconds"]] for x in summaries]
    table = np.array(rows, float)
    print("\nseed   last 100   evaluation   seconds")
    for summary, row in zip(summaries, table, strict=True):
        last, evaluation = ("-" if np.isnan(x) else f"{x:.1f}" for x in row[:2])
        print(f"{summary['seed']:<6} {last:<10} {evaluation:<12} {row[2]:.0f}")
    for label, values in zip(("last 100", "evaluation"), table.T, strict=False):
        if np.isfinite(values).all():
            interval = interval_text(confidence_interval(values, interquartile_mean))
            print(f"{label}: interquartile mean {interquartile_mean(values):.1f}{interval}")
