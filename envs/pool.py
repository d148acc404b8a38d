"""The trainer's handle on all workers: start, command, gather, close."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from envs.shared import PROCESSES
from envs.worker import Report, Worker, WorkerError, run_worker

SECONDS_TO_CLOSE = 1.0
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class WorkerPool(AbstractContextManager):
    """The environments of a run, spread evenly over worker processes; with none, stepped in this one.

    make_worker(environments) must be picklable. The processes get ready while the caller goes on; leaving the context
    ends them."""

    def __init__(self, make_worker: Callable[[range], Worker], num_envs: int, num_workers: int) -> None:
        self.local = None if num_workers else make_worker(range(num_envs))
        self.processes: list[SpawnProcess] = []
        self.connections: list[Connection] = []
        before, on_interrupt = dict(os.environ), signal.signal(signal.SIGINT, signal.SIG_IGN)
        # Workers inherit both: one thread each, and that Ctrl-C, though sent to all, is for the trainer to heed.
        os.environ.update(ONE_THREAD)
        for worker in range(num_workers):
            environments = range(worker * num_envs // num_workers, (worker + 1) * num_envs // num_workers)
            ours, theirs = PROCESSES.Pipe()
            arguments = (make_worker, environments, theirs, os.getpid())
            process = PROCESSES.Process(target=run_worker, args=arguments, daemon=True)
            process.start()
            theirs.close()  # the worker has the only other end, so that its death is an end of file
            self.processes.append(process)
            self.connections.append(ours)
        signal.signal(signal.SIGINT, on_interrupt)
        os.environ.clear()
        os.environ.update(before)

    def collect(self, iteration: int) -> Report:
        """Have all environments fill the shared rollout. How they are spread over workers changes nothing but the
        rounding of the policy's arithmetic. Raises WorkerError if an environment raises or a worker dies."""
        reports = [self.local.collect(iteration)] if self.local else self._command(iteration)
        episodes = sorted(episode for report in reports for episode in report.episodes)
        return Report(episodes, [last for report in reports for last in report.last_observations])

    def __exit__(self, *exception: object) -> None:
        """End all workers, kindly first; returns within about a second whatever they are doing."""
        for env in self.local.envs if self.local else ():
            env.close()
        for connection in self.connections:
            with suppress(OSError):  # that worker has died already
                connection.send(None)
        deadline = time.monotonic() + SECONDS_TO_CLOSE
        for process, connection in zip(self.processes, self.connections, strict=True):
            process.join(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.join()
            connection.close()

    def _command(self, iteration: int) -> list[Report]:
        """Send the command to all workers; wait for all reports, or for the first error."""
        for worker, connection in enumerate(self.connections):
            with self._obituary(worker):
                connection.send(iteration)
        reports: dict[int, Report] = {}
        while len(reports) < len(self.connections):
            ready = wait([connection for i, connection in enumerate(self.connections) if i not in reports])
            for worker in [i for i, connection in enumerate(self.connections) if connection in ready]:
                with self._obituary(worker):
                    reply = self.connections[worker].recv()
                if isinstance(reply, WorkerError):
                    raise reply
                reports[worker] = reply
        return [reports[worker] for worker in sorted(reports)]

    @contextmanager
    def _obituary(self, worker: int) -> Iterator[None]:
        """Turn the end of a worker's pipe into a WorkerError that says how the worker ended."""
        try:
            yield
        except (EOFError, OSError) as error:
            self.processes[worker].join(SECONDS_TO_CLOSE)
            code = self.processes[worker].exitcode or 0
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            raise WorkerError(f"worker {worker} {how}; if memory is short, use fewer environments") from error
