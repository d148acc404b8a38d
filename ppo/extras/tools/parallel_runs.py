"""Train several runs at once, each in a process of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ppo.config.flags import Settings, as_arguments
from ppo.errors import Interrupted, PPOError
from ppo.system.process import die_with_parent
from ppo.system.signals import STOP, stopped_at_once

POLL_SECONDS = 0.05
SECONDS_TO_SAVE = 2.0  # after a second Ctrl-C

Process = subprocess.Popen[bytes]
Job = Iterator[Process]  # yields the process of a run while it waits for that process


class RunFailed(PPOError):
    """A run in a process of its own has failed, after printing its error.

    exit_code: as Popen returns it, -N if signal N killed the process; the attribute is then
    128 + N."""

    def __init__(self, folder: Path, exit_code: int) -> None:
        super().__init__(f"the run in {folder} ended with exit code {exit_code}")
        self.exit_code = exit_code if exit_code > 0 else 128 - exit_code  # after a signal


def start_run(flags: Settings, **options: Any) -> Process:
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
    what Interrupted says has been stopped. Raises Interrupted after a signal, else the first
    PPOError; after a second SIGINT, which leaves the runs SECONDS_TO_SAVE, KeyboardInterrupt.
    """
    waiting = iter(jobs)
    running: list[Job] = []
    failure: PPOError | None = None
    processes: dict[int, Process] = {}  # that were started, by their ids
    terminated: set[int] = set()
    with STOP as stop, stop.raising(), _ended_at_once(processes):
        stop.last_words = partial(_last_words, processes)
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
                    processes[process.pid] = process
                    if stop.received and process.pid not in terminated:
                        terminated.add(process.pid)
                        process.terminate()  # SIGINT could print a traceback as Python starts
                except StopIteration:
                    running.remove(job)
                except PPOError as error:
                    running.remove(job)
                    failure = failure or error
            time.sleep(POLL_SECONDS)
    if stop.received:  # also after the last run has ended
        failure = Interrupted(stop.received, ending)
    if failure:
        raise failure


@contextmanager
def _ended_at_once(processes: Mapping[int, Process]) -> Iterator[None]:
    """After KeyboardInterrupt, let the processes of runs save within SECONDS_TO_SAVE, then kill
    those that have not ended."""
    STOP.is_watched = False
    try:
        yield
    except KeyboardInterrupt:
        deadline = time.monotonic() + SECONDS_TO_SAVE
        try:
            for process in processes.values():
                process.terminate()  # again, if it was asked to already, changes nothing
            while _unended(processes) and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
        finally:
            for process in _unended(processes):
                process.kill()
                process.wait()
        raise
    finally:
        STOP.is_watched = True


def _unended(processes: Mapping[int, Process]) -> list[Process]:
    return [process for process in processes.values() if process.poll() is None]


def _last_words(processes: Mapping[int, Process]) -> str:
    """Say how many runs could not save their last iteration before they were stopped at once."""
    killed = [x for x in processes.values() if x.poll() in (None, -signal.SIGKILL)]
    if not killed:
        return f"{stopped_at_once()}, all runs are saved"
    return f"{stopped_at_once()}, before {len(killed)} runs had saved their last iteration"
