"""ppo seeds: train by one command line with several seeds, side by side."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

from ppo.config import flag
from ppo.errors import ConfigError, Interrupted, PPOError
from ppo.extras import LAUNCHERS
from ppo.extras.curves import EVALUATION, Record
from ppo.extras.runs import print_table, table_of
from ppo.process import StopSignals, available_cores, core_numbers

SECONDS_TO_LOOK = 0.1  # at the processes of runs
PR_SET_PDEATHSIG = 1  # of Linux's prctl.h
# Of a run's process, which finds the same modules as this one.
PROGRAM = "import sys; sys.path[:] = {}; from ppo.cli import main; sys.exit(main())"
Process = subprocess.Popen[bytes]


@dataclass(frozen=True)
class Flags:
    count: int = flag(5, 1, 1000)
    """Number of seeds, counting up from --seed (default: 1)."""


def main(words: list[str], options: Flags, flags: dict[str, Any]) -> None:
    """Train with each seed, as many at the same time as there are cores for, and print the results.
    flags: of training. Raises Interrupted, and PPOError if a run has failed."""
    if os.environ.keys() & LAUNCHERS:
        raise ConfigError("seeds starts its own processes: do not use torchrun")
    given = {"logger": (), **flags}
    if words:
        given["env_name"] = words.pop(0)
    if words:
        raise ConfigError(f"unexpected argument {words[0]}: write flags as --name=value")
    if given.pop("resume", "auto") != "auto":
        raise ConfigError("--resume: leave it out, as the same command continues all runs")
    name = given.pop("name", None)
    parent = given.pop("run_dir", None)
    if not parent and not name:
        raise ConfigError("seeds needs --name=NAME: runs are in runs/NAME/seed-1 and so on")
    folder = Path(parent or f"runs/{name}")
    if (folder / "config.json").exists():
        raise ConfigError(f"{folder} is a run of its own: choose another --name")
    first = given.pop("seed", 1)
    seeds = range(first, first + options.count)
    runs = {seed: folder / f"seed-{seed}" for seed in seeds}
    failed = train_all(runs, given)
    for seed in failed:
        del runs[seed]
    print_results(runs)
    if failed:
        names = ", ".join(map(str, sorted(failed)))
        error = PPOError(f"the runs of these seeds failed: {names}")
        error.exit_code = max(1, *failed.values())  # those of signals are below 0
        raise error


def train_all(runs: dict[int, Path], flags: dict[str, Any]) -> dict[int, int]:
    """Train with each seed in its folder; return the exit codes of those that have failed. Raises
    Interrupted after a signal, when all are saved."""
    num_workers = flags.get("num_workers")
    free = shares_of_cores(len(runs), num_workers)
    waiting = [*runs]
    running: dict[int, Process] = {}
    cores: dict[int, list[int]] = {}
    failed: dict[int, int] = {}
    with StopSignals() as signals:
        try:
            while (waiting or running) and not signals.received:
                while waiting and free:
                    seed = waiting.pop(0)
                    cores[seed] = free.pop()
                    own = {"seed": seed, "run_dir": runs[seed], "resume": "auto"}
                    given = {**flags, **own}
                    running[seed] = start(given, cores[seed])
                    print(f"seed {seed}: {runs[seed]}", flush=True)
                time.sleep(SECONDS_TO_LOOK)
                for seed, process in [*running.items()]:
                    code = process.poll()
                    if code is None:
                        continue
                    if code:
                        failed[seed] = code
                    free.append(cores[seed])
                    del running[seed]
        finally:
            for process in running.values():
                process.terminate()
            for process in running.values():
                process.wait()
    if number := signals.received:
        raise Interrupted(f"{number.name}: saved; the same command continues all runs", number)
    return failed


def shares_of_cores(count: int, num_workers: Any) -> list[list[int]]:
    """Return the cores of each run that trains at the same time, [] where numbers are unknown.
    num_workers: of each run, if it is given."""
    total = available_cores()
    is_given = isinstance(num_workers, int)
    size = num_workers if is_given else total // count
    size = max(1, size)
    at_once = max(1, total // size)
    numbers = core_numbers()
    shares = []
    for _ in range(min(count, at_once)):
        shares.append(numbers[:size])
        numbers = numbers[size:]
    return shares


def start(flags: dict[str, Any], cores: list[int]) -> Process:
    """Start a run in a process and a session of its own, in which no Ctrl-C reaches it."""
    program = PROGRAM.format(sys.path)
    command = [sys.executable, "-c", program, "train"]
    for name, value in flags.items():
        if isinstance(value, dict):
            value = json.dumps(value)
        parts = value
        if not isinstance(value, tuple):
            parts = (value,)
        for part in parts or ("none",):
            command.append(f"--{name}={part}")
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=partial(prepare, cores),
    )


def prepare(cores: list[int]) -> None:
    """Let this process keep to some cores, and end with the one that has started it."""
    library = ctypes.CDLL(None)
    if hasattr(library, "prctl"):
        library.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if cores:
        os.sched_setaffinity(0, cores)


def print_results(runs: dict[int, Path]) -> None:
    """Print a table of the runs, and the mean and median of their evaluations."""
    records = [*map(Record, runs.values())]
    if records:
        print_table(table_of(records))
    means = [run.last(EVALUATION) for run in records]
    found = [x for x in means if x is not None]
    if found:
        print(f"evaluations: mean {fmean(found):.2f}, median {median(found):.2f}")
