"""Start, command, replace and end the workers of a run."""

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.machinery import ModuleSpec
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import DupFd
from typing import Any

import cloudpickle

from ppo.envs.episodes import Values
from ppo.envs.make import Spaces
from ppo.envs.normalize import Arrays
from ppo.envs.sampler import MakeActor, Sampler
from ppo.envs.shared_memory import Shapes, map_arrays, open_memory
from ppo.envs.worker import Report, Worker, merged
from ppo.errors import BadValue, ConfigError, PPOError, Stopped, TrainingError, WorkerLost, reason
from ppo.process import core_numbers

SECONDS_TO_LOOK = 0.05  # at workers, and at signals
SECONDS_TO_START = 60.0  # a worker may take this long to get ready, or --step_timeout
SECONDS_TO_CLOSE = 1.0
MAX_LOST_WORKERS = 10  # workers in LOST_WITHIN_SECONDS
LOST_WITHIN_SECONDS = 600
READY = "ready"
PR_SET_PDEATHSIG = 1  # of Linux's prctl.h
# Set to 1 in workers: one thread each, and no file of the working folder hides Python's modules.
VARIABLES = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONSAFEPATH"]


def reply_of(error: BaseException, name: str) -> Exception:
    """Return the reply of a worker that raised, without a traceback if the cause says it all."""
    if isinstance(error, ConfigError):
        return error  # another worker would not do better
    if isinstance(error, (BadValue, PPOError)):
        return WorkerLost(f"{name}: {reason(error)}")
    return WorkerLost(f"{name}: it raised {reason(error)}", traceback.format_exc())


class LocalWorker:
    """All environments in this process, for --num_workers=0; used as a WorkerProcess is."""

    connection = None

    def __init__(self, env_ids: range, should_stop: Any) -> None:
        self.env_ids = env_ids
        self.columns = slice(env_ids.start, env_ids.stop)
        self.should_stop = should_stop
        self.worker: Worker | None = None

    def start(self) -> None:
        self.worker = None

    def configure(self, spaces: Spaces, shapes: Shapes, arrays: Arrays, make_actor: Any) -> None:
        self.make = partial(Worker, spaces, arrays, self.env_ids, make_actor, self.should_stop)

    def send(self, method: str, *arguments: Any) -> None:
        try:
            self.worker = self.worker or self.make()
            self.reply = getattr(self.worker, method)(*arguments)
        except BaseException as error:  # signals only set a flag
            self.reply = reply_of(error, "environment")

    def receive(self, waited: float) -> tuple[Any]:
        if isinstance(self.reply, (WorkerLost, ConfigError)):
            raise self.reply
        return (self.reply,)

    def end(self, seconds: float = 0.0) -> None:
        if self.worker:
            self.worker.close()


class WorkerProcess:
    """A process that steps the environments of some columns of the rollout."""

    def __init__(self, file: int, env_ids: range, cores: list[int], step_timeout: float) -> None:
        self.file = file
        self.env_ids = env_ids
        self.cores = cores
        self.columns = slice(env_ids.start, env_ids.stop)
        self.name = f"worker of environments {env_ids.start} to {env_ids.stop - 1}"
        self.step_timeout = step_timeout

    def start(self) -> None:
        """Start the process with VARIABLES, without running the user's script again (__spec__), and
        also from a daemonic process."""
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        arguments = (theirs, DupFd(self.file), self.env_ids, self.cores)
        self.process = context.Process(None, run_worker, self.name, arguments, daemon=True)
        current, main = multiprocessing.current_process(), sys.modules["__main__"]
        before = current.daemon, getattr(main, "__spec__", None), {**os.environ}
        current.daemon = False
        main.__spec__ = ModuleSpec("ppo.__main__", None)
        os.environ.update(dict.fromkeys(VARIABLES, "1"))
        try:
            self.process.start()
        finally:
            current.daemon, main.__spec__, variables = before
            for name in {*VARIABLES} - variables.keys():
                del os.environ[name]
            os.environ.update(variables)
        theirs.close()
        self.limit = max(self.step_timeout, SECONDS_TO_START)
        self.last_beat = -1

    def configure(self, spaces: Spaces, shapes: Shapes, arrays: Arrays, make_actor: Any) -> None:
        """Have the process make its Worker."""
        self.beats = arrays["beats"][self.env_ids.start]
        self.send(spaces, shapes, make_actor)

    def send(self, *command: Any) -> None:
        """Send a method's name and arguments, or nothing to end. receive notices a loss."""
        self.silence = 0.0
        with suppress(OSError):
            self.connection.send_bytes(cloudpickle.dumps(command))

    def receive(self, waited: float) -> tuple[Any] | None:
        """Return a reply, in a tuple, if there is one. waited: seconds since the last call; a pause
        of the whole job does not count. Raises WorkerLost, also for a call of an environment that
        takes longer than --step_timeout."""
        try:
            while self.connection.poll():
                reply = self.connection.recv()
                if isinstance(reply, (WorkerLost, ConfigError)):
                    raise reply
                if reply != READY:
                    return (reply,)
                self.limit = self.step_timeout
        except (EOFError, OSError) as error:
            self.process.join(SECONDS_TO_CLOSE)
            code = self.process.exitcode
            end = f"ended with exit code {code}"
            if code is None:
                end = "has closed its pipe"
            elif code < 0:
                end = f"was killed by {signal.Signals(-code).name}"
            raise WorkerLost(f"{self.name} {end}") from error
        beat = int(self.beats[0])
        if beat != self.last_beat:
            self.silence = 0.0
        self.silence += min(waited, 2 * SECONDS_TO_LOOK)
        self.last_beat = beat
        if self.silence > self.limit:
            raise WorkerLost(f"{self.name} hung for over {self.limit:g} s (--step_timeout)")
        return None

    def end(self, seconds: float = 0.0) -> None:
        """Wait some seconds for the end, then kill the process and all that it has started."""
        if self.process.pid is None:
            return  # it could not be started
        self.process.join(seconds)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.connection.close()


AnyWorker = WorkerProcess | LocalWorker


class WorkerPool:
    """Step the environments of a run, spread evenly over worker processes, or in this process.
    A worker that dies, raises or hangs is replaced, and its part of the rollout collected again.
    file: the shared memory; should_stop: polled while waiting; ids: environments, else all."""

    def __init__(self, spaces: Spaces, should_stop: Any = bool, ids: range | None = None) -> None:
        config = spaces.config
        ids = ids or range(config.num_envs)
        num_workers = min(int(config.num_workers), len(ids))
        self.columns = slice(ids.start, ids.stop)
        self.file = open_memory()
        self.should_stop = should_stop
        self.lost_at: list[float] = []
        self.sampler: Any = None
        cores = core_numbers()
        if len(cores) != num_workers or config.inference == "learner":
            cores = []  # workers are not pinned
        self.workers: list[AnyWorker] = []
        for number in range(num_workers):
            first = number * len(ids) // num_workers
            last = (number + 1) * len(ids) // num_workers
            own = cores[number : number + 1]
            part = ids[first:last]
            self.workers.append(WorkerProcess(self.file, part, own, config.step_timeout))
        if not num_workers:
            self.workers.append(LocalWorker(ids, should_stop))
        for worker in self.workers:
            worker.start()

    def configure(
        self, spaces: Spaces, shapes: Shapes, arrays: Arrays, make_actor: MakeActor, on_lost: Any
    ) -> None:
        """Have workers make their environments. arrays: in the shared memory, of these shapes;
        on_lost: called for each worker that is replaced, with a sentence and a traceback."""
        config = spaces.config
        self.num_steps = config.num_steps
        self.on_lost = on_lost
        acts = make_actor if config.inference == "worker" else None
        if not acts:
            self.sampler = Sampler(spaces, arrays, range(config.num_envs), make_actor)
        light = spaces.with_config(replace(config, learner="auto"))  # whose class may import torch
        self.settings = (light, shapes, arrays, acts)
        for worker in self.workers:
            worker.configure(*self.settings)

    def collect(self, iteration: int, attributes: Values) -> Report:
        """Have all environments fill the shared rollout. Raises Stopped."""
        if not self.sampler:
            return merged(self.call("collect", iteration, attributes))
        self.attributes = attributes
        self.call("begin", attributes)
        self.sampler.begin(iteration)
        for t in range(self.num_steps):
            self.sampler(t, self.columns)
            reports = self.call("step", t)
        return merged(reports)

    def call(self, *command: Any, only: AnyWorker | None = None) -> list[Any]:
        """Call a method of all workers, or of one, by its name and arguments, and return replies.
        A worker that is lost is replaced. Raises Stopped, TrainingError after too many losses."""
        workers = [only] if only else self.workers
        for worker in workers:
            worker.send(*command)
        replies: dict[AnyWorker, Any] = {}
        now = time.monotonic()
        while missing := [worker for worker in workers if worker not in replies]:
            if connections := [x.connection for x in missing if x.connection]:
                wait(connections, SECONDS_TO_LOOK)
            before, now = now, time.monotonic()
            if self.should_stop():
                raise Stopped
            for worker in missing:
                try:
                    if reply := worker.receive(now - before):
                        replies[worker] = reply[0]
                except WorkerLost as lost:
                    self._replace(worker, command, *lost.args)
        return [replies[worker] for worker in workers]

    def _replace(self, worker: AnyWorker, command: Any, cause: str, details: str = "") -> None:
        time.sleep(SECONDS_TO_LOOK)  # a scheduler may signal a worker before this process
        if self.should_stop():
            raise Stopped
        now = time.monotonic()
        self.lost_at = [x for x in self.lost_at if now - x < LOST_WITHIN_SECONDS] + [now]
        if len(self.lost_at) > MAX_LOST_WORKERS:
            sentence = f"more than {MAX_LOST_WORKERS} workers failed in ten minutes; the last one: "
            raise TrainingError(sentence + cause, details)
        self.on_lost(f"warning: a worker was replaced: {cause}", details)
        worker.end()
        worker.start()
        worker.configure(*self.settings)
        if command[0] == "step":  # first collect its part of the rows before again
            self.call("begin", self.attributes, only=worker)
            for row in range(command[1]):
                self.sampler(row, worker.columns)
                self.call("step", row, only=worker)
            self.sampler(command[1], worker.columns)
        worker.send(*command)

    def close(self) -> None:
        """End all workers: they are asked to, and killed after a second."""
        if not self.workers:
            return
        os.close(self.file)
        for worker in self.workers:
            if isinstance(worker, WorkerProcess):
                worker.send()
        deadline = time.monotonic() + SECONDS_TO_CLOSE
        while self.workers:
            self.workers.pop().end(max(0.0, deadline - time.monotonic()))


def run_worker(connection: Connection, file: Any, env_ids: range, cores: list[int]) -> None:
    """Run a worker process: make a Worker as the first message says, and call the methods that the
    trainer asks for, until it sends (). On Linux it ends with the trainer and, as a batch job, does
    not preempt it. file: a DupFd of the shared memory."""
    os.setsid()  # so that it is killed together with all that it starts
    process = multiprocessing.current_process()
    process.daemon = False  # else environments could not start processes
    del os.environ["PYTHONSAFEPATH"]  # else these would inherit it
    gc.disable()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        if cores:
            os.sched_setaffinity(0, cores)
    worker = None
    try:
        while command := cloudpickle.loads(connection.recv_bytes()):
            if worker:
                method, *arguments = command
                connection.send(getattr(worker, method)(*arguments))
                continue
            spaces, shapes, make_actor = command
            worker = Worker(spaces, map_arrays(file.detach(), shapes), env_ids, make_actor)
            connection.send(READY)
            gc.freeze()  # what exists now lasts as long as the process
            gc.enable()
        if worker:
            worker.close()
    except (EOFError, ConnectionError):
        pass  # the trainer has ended
    except BaseException as error:
        with suppress(OSError):
            connection.send(reply_of(error, process.name))
    gc.unfreeze()  # so that environments are destroyed: emulators complain otherwise
