"""Start, command and watch one worker process, or the same worker in the trainer's own process."""

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from multiprocessing import resource_tracker
from typing import Any

from ppo.envs.environment_slice import called_env
from ppo.envs.errors import WorkerError
from ppo.envs.shared import PROCESSES, SharedArray
from ppo.envs.worker import PARENT_SIGNALS, Worker, run_worker

SECONDS_TO_EXIT = 1.0  # until a process that has closed its pipe has an exit code
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(eq=False)
class WorkerProcess:
    """A worker in a process of its own.

    env_indices, env_ids: its environments' numbers in this rank and in the whole run; heartbeats:
    one row per worker, its own is row number; timeouts: the seconds after which it counts as hung,
    in a "step", or in a "reset" or its start."""

    make_worker: Callable[..., Worker]
    env_indices: range
    env_ids: Sequence[int]
    _: KW_ONLY
    number: int
    heartbeats: SharedArray
    timeouts: Mapping[str, float]

    def __post_init__(self) -> None:
        self.heartbeat = self.heartbeats.array[self.number]
        self.has_stepped_before = False  # in a process that this one replaces
        self.replaced_at = 0.0
        self.start()

    def start(self) -> None:
        self.num_calls = 0
        self.heartbeat[:] = 0
        self.connection, theirs = PROCESSES.Pipe()
        self.process = PROCESSES.Process(
            target=run_worker,
            args=(self.make_worker, self.env_indices, theirs),
            kwargs={"heartbeats": self.heartbeats, "number": self.number, "parent": os.getpid()},
            daemon=True,
        )
        resource_tracker.ensure_running()  # starting it unblocks signals
        # Workers inherit both: one thread each, and signals blocked until they are ignored.
        environment = dict(os.environ)
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, PARENT_SIGNALS)
        os.environ.update(ONE_THREAD)
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            os.environ.clear()
            os.environ.update(environment)
        theirs.close()  # so that the worker's death closes the pipe

    def send(self, *command: Any) -> None:
        """Send a command: the name of a method of Worker, and its arguments."""
        self.since = time.monotonic()
        with suppress(OSError):  # it has died, which poll reports
            self.connection.send(command)

    def poll(self) -> Any:
        """Return the reply to a command, None if there is none yet.

        Raises WorkerError if the worker has raised, died or hung."""
        try:
            if self.connection.poll():
                reply = self.connection.recv()
                if isinstance(reply, WorkerError):
                    raise reply
                return reply
            is_alive = self.process.is_alive()  # a child of its own may hold the pipe open
        except (EOFError, OSError):
            is_alive = False
        self._check(is_alive)
        return None

    def _check(self, is_alive: bool) -> None:
        """Raise WorkerError if the worker has died, or hangs by its heartbeat."""
        num_calls, call = map(int, self.heartbeat)
        if num_calls != self.num_calls:
            self.num_calls = num_calls
            self.since = time.monotonic()
        kind = "reset" if call < 0 or not num_calls else "step"
        limit = self.timeouts[kind]
        where = "as it started"
        if num_calls:
            where = f"in a {kind} of environment {self.env_ids[called_env(call)]}"
        if not is_alive:
            raise WorkerError(f"worker {self.number} {self._describe_exit(where)}")
        if time.monotonic() - self.since > limit:
            too_long = f"over {limit:g} s (--{kind}_timeout)"
            raise WorkerError(f"worker {self.number} hung {where}: {too_long}")

    def _describe_exit(self, where: str) -> str:
        self.process.join(SECONDS_TO_EXIT)
        code = self.process.exitcode or 0
        if code >= 0:
            return f"ended with exit code {code} {where}"
        killed = f"was killed by {signal.Signals(-code).name} {where}"
        if -code == signal.SIGKILL:
            return f"{killed}; if memory is short, use fewer environments"
        return killed

    @property
    def has_stepped(self) -> bool:
        """Whether it has begun a step, after making and resetting its environments."""
        return bool(self.heartbeat[0] > 2 * len(self.env_indices))

    def ask_to_end(self) -> None:
        with suppress(OSError):  # it has died already
            self.connection.send(None)

    def end(self, deadline: float) -> None:
        """Wait for its end until a time, then kill it."""
        self.process.join(max(0.0, deadline - time.monotonic()))
        self.process.kill()
        self.process.join()
        self.connection.close()


class LocalWorker(WorkerProcess):
    """A worker in the trainer's own process: it can raise, but it cannot be killed or timed."""

    connection: Any = None

    def start(self) -> None:
        self.heartbeat[:] = 0
        self.worker = self.make_worker(env_indices=self.env_indices, heartbeat=self.heartbeat)
        self.commands: deque[tuple[Any, ...]] = deque()

    def send(self, *command: Any) -> None:
        self.commands.append(command)

    def poll(self) -> Any:
        method, *arguments = self.commands.popleft()
        return getattr(self.worker, method)(*arguments)

    def ask_to_end(self) -> None:
        self.worker.close()

    def end(self, deadline: float) -> None:
        pass
