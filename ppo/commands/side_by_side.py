"""Runs in processes of their own, several at once."""

import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from ppo.config.flags import Settings, as_arguments
from ppo.errors import Interrupted, PPOError
from ppo.system.process import die_with_parent
from ppo.system.signals import StopSignals

SECONDS_BETWEEN_LOOKS = 0.05

Process = subprocess.Popen[bytes]
Job = Iterator[Process]  # yields the process of a run for as long as it waits for it


class RunFailed(PPOError):
    """A run in a process of its own ended with an error, which it has printed."""

    def __init__(self, folder: Path, exit_code: int) -> None:
        super().__init__(f"the run in {folder} ended with exit code {exit_code}")
        self.exit_code = exit_code if exit_code > 0 else 128 - exit_code  # after a signal


def start_run(flags: Settings, **options) -> Process:
    """Start a run in a process that dies with this one. options: further ones of Popen."""
    program = [sys.argv[0]]
    if Path(sys.argv[0]).name == "__main__.py":
        program = ["-m", "ppo"]
    # In a session of its own, Ctrl-C reaches it once only: from run_jobs.
    return subprocess.Popen(
        [sys.executable, *program, *as_arguments(flags)],
        start_new_session=True,
        preexec_fn=die_with_parent,
        **options,
    )


def wait_for(process: Process, folder: Path) -> Job:
    """Wait until the run in a folder ends. Raises RunFailed."""
    while process.poll() is None:
        yield process
    if process.returncode:
        raise RunFailed(folder, process.returncode)


def run_jobs(jobs: Iterable[Job], at_once: int, ending: str) -> None:
    """Run jobs, at most so many at once, and end the processes that they wait for by a signal.

    After a signal, or an error of a job, no other is begun, and those that run go on to their end.
    ending: says what a signal has done. Raises Interrupted after a signal, else the first error.
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
                        process.terminate()  # however early: a SIGINT might meet Python's start
                except StopIteration:
                    running.remove(job)
                except PPOError as error:
                    running.remove(job)
                    failure = failure or error
            time.sleep(SECONDS_BETWEEN_LOOKS)
    if failure:
        raise failure
