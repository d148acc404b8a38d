"""Start, command, replace and end the workers of a run."""

import gc
import importlib.machinery
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise, starmap
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from ppo.envs.make import Spaces
from ppo.envs.sampler import MakeActor, Sampler
from ppo.envs.shared_memory import SharedArray
from ppo.envs.worker import Report, Worker
from ppo.errors import BadValue, PPOError, TrainingError, reason
from ppo.process import core_numbers

SECONDS_TO_LOOK = 0.05  # at workers, and at signals
SECONDS_TO_START = 60.0  # the least that a worker may take until it is ready
SECONDS_TO_CLOSE = 1.0
MAX_LOSSES = 10  # of workers in SECONDS_OF_LOSSES
SECONDS_OF_LOSSES = 600
READY = "ready"
PR_SET_PDEATHSIG = 1  # of Linux's prctl.h
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Shared = Mapping[str, SharedArray]


class Stopped(Exception):
    """The trainer was asked to stop while it waited."""


class WorkerLost(Exception):
    """A worker has died, raised or hung. details: a traceback, if it raised."""

    def __init__(self, cause: str, details: str = "") -> None:
        super().__init__(cause)
        self.details = details


class Failure(NamedTuple):
    """What a worker sends in place of a reply when something was raised in it."""

    cause: str
    details: str


def failure_of(error: BaseException) -> Failure:
    """Describe what was raised in a worker, with its traceback unless the cause says it all."""
    if isinstance(error, (BadValue, PPOError)):
        return Failure(reason(error), "")
    return Failure(f"it raised {reason(error)}", traceback.format_exc())


class WorkerProcess:
    """A process that steps the environments of some columns of the rollout."""

    def __init__(
        self, made_of: bytes, shared: Shared, env_ids: range, number: int, cores: Collection[int]
    ) -> None:
        heartbeat = SharedArray((1,), "int64")
        self.made_of = made_of
        self.arguments = (shared, env_ids, heartbeat, cores)
        self.heartbeat = heartbeat.array
        self.columns = slice(env_ids.start, env_ids.stop)
        self.number = number

    def start(self) -> None:
        """Start the process, without waiting until it is ready."""
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=run_worker, args=(theirs, self.made_of, *self.arguments), daemon=True
        )
        with _starting_a_worker():
            self.process.start()
        theirs.close()
        self.is_ready = False
        self.last_beat = -1
        self.silence = 0.0

    def send(self, method: str, *arguments: Any) -> None:
        """Ask for a method of the worker. A loss is noticed by receive."""
        self.silence = 0.0
        with suppress(OSError):
            self.connection.send_bytes(cloudpickle.dumps((method, *arguments)))

    def receive(self) -> tuple[Any] | None:
        """Return a reply, in a tuple; None if there is none yet. Raises WorkerLost."""
        try:
            while self.connection.poll():
                reply = self.connection.recv()
                if isinstance(reply, Failure):
                    raise WorkerLost(f"worker {self.number}: {reply.cause}", reply.details)
                if reply != READY:
                    return (reply,)
                self.is_ready = True
        except (EOFError, OSError) as error:
            self.process.join(SECONDS_TO_CLOSE)
            raise WorkerLost(f"worker {self.number} {_ending(self.process.exitcode)}") from error
        return None

    def check_progress(self, waited: float, timeout: float) -> None:
        """Add seconds that the trainer has waited. Raises WorkerLost for a call of an environment
        that takes longer than timeout; a pause of the whole job does not count as waiting."""
        beat = int(self.heartbeat[0])
        if beat != self.last_beat:
            self.silence = 0.0
        self.last_beat = beat
        self.silence += min(waited, 2 * SECONDS_TO_LOOK)
        if self.silence > (timeout if self.is_ready else max(timeout, SECONDS_TO_START)):
            raise WorkerLost(f"worker {self.number} hung for over {timeout:g} s (--step_timeout)")

    def kill(self) -> None:
        """End the process and all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid or 0, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.connection.close()


class WorkerPool:
    """Step the environments of a run, spread evenly over worker processes, or in this process.

    A worker that dies, raises or hangs is replaced, and its part of the rollout collected again."""

    def __init__(
        self,
        spaces: Spaces,
        shared: Shared,
        make_actor: MakeActor,
        should_stop: Callable[[], bool],
        on_loss: Callable[[str, str], None],
    ) -> None:
        """Start the workers. should_stop: looked at while waiting; on_loss: called with a cause and
        details when a worker is replaced."""
        config = spaces.config
        num_envs, num_workers = config.num_envs, config.num_workers
        self.spaces = spaces
        self.arrays = {name: x.array for name, x in shared.items()}
        self.step_timeout = config.step_timeout
        self.should_stop = should_stop
        self.on_loss = on_loss
        self.losses: list[float] = []
        self.local: Worker | None = None
        self.workers: list[WorkerProcess] = []
        self.sampler: Sampler | None = None
        self.make_actor: MakeActor | None = make_actor
        if config.inference == "learner":
            self.sampler = Sampler(spaces, self.arrays, range(num_envs), make_actor)
            self.make_actor = None
        cores = core_numbers()
        is_pinned = len(cores) == num_workers and not self.sampler
        made_of = cloudpickle.dumps((spaces, self.make_actor))
        cuts = [number * num_envs // max(1, num_workers) for number in range(num_workers + 1)]
        for number, env_ids in enumerate(starmap(range, pairwise(cuts))):
            own = cores[number : number + 1] if is_pinned else []
            self.workers.append(WorkerProcess(made_of, shared, env_ids, number, own))
            self.workers[-1].start()

    def collect(self, iteration: int, attributes: Mapping[str, Any]) -> Report:
        """Have all environments fill the shared rollout. Raises Stopped."""
        if self.sampler:
            return self._collect_by_sampler(iteration, attributes)
        if not self.workers:
            return self._collect_here(iteration, attributes)
        reports = self.call("collect", iteration, attributes)
        return _merged(reports)

    def call(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of all workers, and return their replies."""
        if not self.workers:
            return [self._call_here(method, *arguments)]
        for worker in self.workers:
            worker.send(method, *arguments)

        def ask_again(worker: WorkerProcess) -> None:
            worker.send(method, *arguments)

        return self._replies(self.workers, ask_again)

    def _replies(
        self, workers: Sequence[WorkerProcess], ask_again: Callable[[WorkerProcess], None]
    ) -> list[Any]:
        """Wait for a reply of each of some workers; replace those that are lost. Raises Stopped."""
        replies: dict[WorkerProcess, Any] = {}
        now = time.monotonic()
        while missing := [worker for worker in workers if worker not in replies]:
            wait([worker.connection for worker in missing], SECONDS_TO_LOOK)
            before, now = now, time.monotonic()
            if self.should_stop():
                raise Stopped
            for worker in missing:
                try:
                    if reply := worker.receive():
                        replies[worker] = reply[0]
                    else:
                        worker.check_progress(now - before, self.step_timeout)
                except WorkerLost as loss:
                    self._count(loss)
                    worker.kill()
                    worker.start()
                    ask_again(worker)
        return [replies[worker] for worker in workers]

    def _collect_by_sampler(self, iteration: int, attributes: Mapping[str, Any]) -> Report:
        """Step on command, by actions that are drawn here for all environments."""
        assert self.sampler

        def catch_up(worker: WorkerProcess, t: int) -> None:
            """Have a new worker collect its part of the rows before t again, and begin row t."""
            worker.send("begin", attributes)
            self._replies([worker], lambda another: another.send("begin", attributes))
            for row in range(t + 1):
                self.sampler(row, worker.columns)
                worker.send("step", row)
                if row < t:
                    self._replies([worker], partial(catch_up, t=row))

        self.call("begin", attributes)
        self.sampler.begin(iteration)
        for t in range(len(self.arrays["actions"])):
            self.sampler(t)
            if self.workers:
                for worker in self.workers:
                    worker.send("step", t)
                self._replies(self.workers, partial(catch_up, t=t))
            else:
                self._call_here("step", t)
        return _merged(self.call("end"))

    def _collect_here(self, iteration: int, attributes: Mapping[str, Any]) -> Report:
        report = self._call_here("collect", iteration, attributes, self.should_stop)
        if self.should_stop():
            raise Stopped
        return report

    def _call_here(self, method: str, *arguments: Any) -> Any:
        """Call a method of the worker in this process; make another one after an error."""
        while True:
            try:
                if not self.local:
                    env_ids = range(self.spaces.config.num_envs)
                    heartbeat = np.zeros(1, np.int64)
                    self.local = Worker(
                        self.spaces, self.arrays, env_ids, heartbeat, self.make_actor
                    )
                return getattr(self.local, method)(*arguments)
            except BaseException as error:  # signals only set a flag
                failure = failure_of(error)
                self._count(WorkerLost(f"environment: {failure.cause}", failure.details))
                if self.local:
                    self.local.close()
                self.local = None

    def _count(self, loss: WorkerLost) -> None:
        """Count a lost worker. Raises TrainingError for too many of them, Stopped if a signal has
        ended the worker as well."""
        time.sleep(SECONDS_TO_LOOK)  # a scheduler's signal may reach a worker first
        if self.should_stop():
            raise Stopped
        now = time.monotonic()
        self.losses = [x for x in self.losses if now - x < SECONDS_OF_LOSSES] + [now]
        if len(self.losses) > MAX_LOSSES:
            raise TrainingError(
                f"more than {MAX_LOSSES} workers were lost in ten minutes, the last one because "
                f"{loss}",
                loss.details,
            )
        self.on_loss(str(loss), loss.details)

    def act_by(self, make_actor: MakeActor) -> None:
        """Act by another actor from the next rollout on."""
        if self.sampler:
            self.sampler.act_by(make_actor)
            return
        self.make_actor = make_actor
        for worker in self.workers:
            worker.made_of = cloudpickle.dumps((self.spaces, make_actor))
        self.call("act_by", make_actor)

    def close(self) -> None:
        """End all workers: they are asked to, and killed after a second."""
        if self.local:
            self.local.close()
        for worker in self.workers:
            with suppress(OSError):
                worker.connection.send_bytes(cloudpickle.dumps(None))
        deadline = time.monotonic() + SECONDS_TO_CLOSE
        for worker in self.workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            worker.kill()


def run_worker(
    connection: Connection,
    made_of: bytes,
    shared: Shared,
    env_ids: range,
    heartbeat: SharedArray,
    cores: Collection[int],
) -> None:
    """Run a worker process: call the methods that the trainer asks for, until it asks for None."""
    os.setsid()  # so that it is killed together with all that it starts
    multiprocessing.current_process().daemon = False  # else environments could not start processes
    _prefer_the_trainer(cores)
    try:
        spaces, make_actor = cloudpickle.loads(made_of)
        arrays = {name: array.array for name, array in shared.items()}
        worker = Worker(spaces, arrays, env_ids, heartbeat.array, make_actor)
        connection.send(READY)
        gc.freeze()  # what exists now lasts as long as the process
        gc.enable()
        while command := cloudpickle.loads(connection.recv_bytes()):
            method, *arguments = command
            connection.send(getattr(worker, method)(*arguments))
        worker.close()
    except (EOFError, ConnectionError):
        pass  # the trainer has ended
    except BaseException as error:
        with suppress(OSError):
            connection.send(failure_of(error))
    gc.unfreeze()  # so that environments are destroyed: emulators complain otherwise


def _prefer_the_trainer(cores: Collection[int]) -> None:
    """End with the trainer, and do not preempt it where the system can be told so."""
    gc.disable()
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        if cores:
            os.sched_setaffinity(0, cores)


@contextmanager
def _starting_a_worker() -> Iterator[None]:
    """Let a process start in which libraries use one thread, which does not run the user's script
    again, and which may be started by a daemonic process such as one of multiprocessing.Pool."""
    current, main = multiprocessing.current_process(), sys.modules["__main__"]
    before = current.daemon, getattr(main, "__spec__", None), dict(os.environ)
    current.daemon = False
    main.__spec__ = importlib.machinery.ModuleSpec("ppo.__main__", None)
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    try:
        yield
    finally:
        current.daemon, main.__spec__, variables = before
        for name in ONE_THREAD:
            del os.environ[name]
            if name in variables:
                os.environ[name] = variables[name]


def _ending(exit_code: int | None) -> str:
    if exit_code is None:
        return "has closed its pipe"
    if exit_code < 0:
        return f"was killed by {signal.Signals(-exit_code).name}"
    return f"ended with exit code {exit_code}"


def _merged(reports: Sequence[Report]) -> Report:
    first, *others = reports
    for report in others:
        first.add(report)
    return first
