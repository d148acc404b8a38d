"""Train several runs at once, each in a process of its own."""

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from ppo.config.flags import Settings, as_arguments
from ppo.errors import Interrupted, PPOError
from ppo.system.process import die_with_parent
from ppo.system.signals import StopSignals

SECONDS_BETWEEN_LOOKS = 0.05

Process = subprocess.Popen[bytes]
Job = Iterator[Process]  # yields the process of a run while it waits for that process


class RunFailed(PPOError):
    """A run in a process of its own has failed, after printing its error.

    exit_code: as Popen returns it, -N if signal N killed the process; the attribute is then
    128 + N."""

    def __init__(self, folder: Path, exit_code: int) -> None:
        super().__init__(f"the run in {folder} ended with exit code {exit_code}")
        self.exit_code = exit_code if exit_code > 0 else 128 - exit_code  # after a signal


def start_run(flags: Settings, **options) -> Process:
    """Start a run in a process that is killed when this one ends. options: for Popen."""
    program = [sys.argv[0]]
    if Path(sys.argv[0]).name == "__main__.py":
        program = ["-m", "ppo"]
    # Ctrl-C does not reach a process in another session: only run_jobs tells it to stop.
    return subprocess.Popen(
        [sys.executable, *program, *as_arguments(flags)],
        start_new_session=True,
        preexec_fn=partial(die_with_parent, os.getpid()),
        **options,
    )


def wait_for(process: Process, folder: Path) -> Job:
    """Wait until the process of the run in a folder ends. Raises RunFailed if it has failed."""
    while process.poll() is None:
        yield process
    if process.returncode:
        raise RunFailed(folder, process.returncode)


def run_jobs(jobs: Iterable[Job], at_once: int, ending: str) -> None:
    """Run jobs, at most at_once of them at the same time.

    After a signal (SIGINT, or one of URGENT) no further job is started, and running processes are
    sent SIGTERM. After an error of a job no further job is started, and the others finish. ending:
    as for Interrupted. Raises Interrupted after a signal, else the first PPOError.
    """
    waiting = iter(jobs)
    running: list[Job] = []
    failure: PPOError | None = None
    terminated: set[int] = set()  # ids of processes
    with StopSignals() as stop:
        while True:
            if stop.received:
                failure = Interrupted(stop.received, ending)
            try:
                while not failure and len(running) < at_once and (job := next(waiting, None)):
                    running.append(job)
            except PPOError as error:
                failure = error
            if not running:
                break
            for job in list(running):
                try:
                    process = next(job)
                    if stop.received and process.pid not in terminated:
                        terminated.add(process.pid)
                        process.terminate()  # SIGINT could print a traceback as Python starts
                except StopIteration:
                    running.remove(job)
                except PPOError as error:
                    running.remove(job)
                    failure = failure or error
            time.sleep(SECONDS_BETWEEN_LOOKS)
    if failure:
        raise failure
