"""Start, command and watch one worker process, or the same worker in the trainer's own process."""

import gc
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.machinery import ModuleSpec
from multiprocessing import resource_tracker, util
from pathlib import Path
from threading import local
from typing import Any

import numpy as np

from ppo.envs.channel import Channel
from ppo.envs.errors import WorkerError, worker_error
from ppo.envs.heartbeat import CALLS, NUM_CALLS, SHAPE, describe_environments
from ppo.envs.shared_memory import PROCESSES, Parcel, SharedArray
from ppo.errors import PPOError
from ppo.guard import Deadline
from ppo.system.clock import Stopwatch
from ppo.system.output import LineWriter
from ppo.system.process import (
    die_with_parent,
    ignore_harmless_warnings,
    kill_tree,
    use_batch_scheduling,
)
from ppo.system.signals import STOP, URGENT

PARENT_SIGNALS = (signal.SIGINT, *URGENT)  # for the trainer to handle
SECONDS_TO_EXIT = 1.0  # until a process that has closed its pipe has an exit code
SECONDS_TO_LOOK = 0.05  # between looks at a process that is asked to end
CHILD_MAIN = ModuleSpec("ppo.system.worker_main", None)  # imported instead of the user's script
# Python code before that of multiprocessing: python -c would look into the working folder first. No
# garbage collection until the imports are done: run_worker enables it.
BEGIN = (
    "import gc, sys\ngc.disable()\nsys.path[:] = filter(None, sys.path)\n"
    "from contextlib import suppress\n"
)
# Where an import hook has found this package: hooks are asked after the path, which may have
# another of its name.
OF_A_HOOK = "with suppress(ImportError): import ppo\n"
# EOFError: the trainer was killed before it had sent what to run.
SILENTLY = "with suppress(EOFError): "


def run_worker(
    make_worker: Parcel,
    end: socket.socket,
    parent: int,
    cores: Sequence[int],
    start_method: str | None,
) -> None:
    """Run a worker process: execute commands, the arguments of Worker.run, until one is None.

    Each result is sent back. An exception is sent back, too, and ends the process. make_worker:
    holds a function; end: of a Channel; parent: the trainer's process id; cores: those it may run
    on, () for all; start_method: the trainer's, by which environments start processes, too."""
    die_with_parent(parent)  # the kernel kills it even while an environment hangs
    use_batch_scheduling(cores)
    ignore_harmless_warnings()
    _ignore_parent_signals()
    _prepare_forks()
    multiprocessing.current_process().daemon = False  # else environments could not start processes
    multiprocessing.set_start_method(start_method, force=True)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream and stream.isatty():  # a closed one is None
            setattr(sys, name, LineWriter(stream))
    channel = Channel(end)
    try:
        worker = make_worker.unpack()()
        gc.freeze()
        gc.enable()
        for command in iter(channel.receive, None):
            channel.send(worker.run(*command))
        worker.close()
    except (EOFError, ConnectionError):
        pass  # the trainer has ended
    except BaseException as error:  # the trainer's signals are not raised here
        if not isinstance(error, PPOError):
            error = worker_error("a worker", error)
        channel.send(error)
    gc.unfreeze()  # so that environments are destroyed at exit: emulators print warnings otherwise


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Start processes that import nothing from the working folder as they start, neither run the
    user's script nor are ended by signals, and print nothing if the trainer ends meanwhile."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    start = util.spawnv_passfds
    start_method = multiprocessing.get_start_method(allow_none=True)
    is_on_path = str(Path(__file__).parents[2]) in map(os.path.abspath, sys.path)
    begin = BEGIN + ("" if is_on_path else OF_A_HOOK) + SILENTLY

    def start_begun(path: Any, args: Any, passfds: Any) -> int:
        words = map(os.fsdecode, args)
        code = "from multiprocessing"
        return start(path, [begin + x if x.startswith(code) else x for x in words], passfds)

    util.spawnv_passfds = start_begun
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        resource_tracker.ensure_running()  # before signals are blocked: starting it unblocks them
        # Inherited by the worker, which unblocks them when it ignores them.
        signal.pthread_sigmask(signal.SIG_BLOCK, PARENT_SIGNALS)
        main.__spec__ = CHILD_MAIN
        yield
    finally:
        main.__spec__ = spec
        util.spawnv_passfds = start
        multiprocessing.set_start_method(start_method, force=True)  # which starting has fixed
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _ignore_parent_signals() -> None:
    """Ignore signals sent to the whole process group of a terminal or job: the trainer acts."""
    for number in PARENT_SIGNALS:
        # Not SIG_IGN, which processes started by environments would inherit.
        signal.signal(number, _ignore)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PARENT_SIGNALS)


def _ignore(number: int, frame: Any) -> None:
    pass


FORKING = local()  # by thread, the signals that were blocked before; None outside of a run


@cache
def _prepare_forks() -> None:
    """Give the processes that environments fork handlers of their own, from now on. Outside of a
    run, nothing changes."""
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child
    )


def _before_fork() -> None:
    """Hold signals back until the process that an environment forks has its own handlers."""
    FORKING.blocked = None
    if STOP.handlers_before or signal.getsignal(signal.SIGTERM) is _ignore:
        FORKING.blocked = signal.pthread_sigmask(signal.SIG_BLOCK, PARENT_SIGNALS)


def _after_fork() -> None:
    if FORKING.blocked is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, FORKING.blocked)


def _after_fork_in_child() -> None:
    """Let it be terminated, as from any other program; Ctrl-C is for the trainer."""
    if signal.getsignal(signal.SIGTERM) is _ignore:  # forked from a worker
        gc.enable()
        for number in URGENT:
            signal.signal(number, signal.SIG_DFL)
    if STOP.handlers_before:  # from the trainer
        for restored, handler in STOP.handlers_before.items():
            signal.signal(restored, handler)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if STOP.is_kept:
            signal.set_wakeup_fd(-1)
    _after_fork()


@dataclass(eq=False)
class WorkerProcess:
    """Run a ppo.envs.worker.Worker in its own process, or another object with run and close.

    env_indices, env_ids: its environments' numbers in this process and in the whole run; deadlines:
    of calls in ppo.envs.heartbeat.CALLS, after which it counts as hung; cores: those it may run on,
    () for all."""

    make_worker: Callable[..., Any]
    env_indices: range
    env_ids: Sequence[Any]
    number: int
    deadlines: Mapping[str, Deadline] = field(default_factory=dict)
    cores: Sequence[int] = ()

    def __post_init__(self) -> None:
        _prepare_forks()
        self.process: Any = None  # from its start to its end
        self.progress = (0, 0)  # calls of environments, and bytes of commands and replies
        self.watch = Stopwatch()  # since the last sign of life
        self.replaced_at = 0.0  # if another process was lost and this one has not stepped yet
        self.name = f"worker {self.number}"
        heartbeat = SharedArray(SHAPE, np.int64)
        self.heartbeat = heartbeat.array
        self.make = partial(self.make_worker, env_indices=self.env_indices, heartbeat=heartbeat)
        self.start()

    def start(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(True)
        self.channel = Channel(ours)
        self.parcel = Parcel(self.make)  # kept until the worker has unpacked it
        start_method = multiprocessing.get_start_method(allow_none=True)
        arguments = (self.parcel, theirs, os.getpid(), self.cores, start_method)
        process = PROCESSES.Process(target=run_worker, args=arguments, daemon=True)
        try:
            with _undisturbed():
                process.start()
            self.process = process
        finally:
            theirs.close()  # so that the worker's death closes its end

    def reassign(
        self, name: str, env_ids: Sequence[Any], deadlines: Mapping[str, Deadline]
    ) -> None:
        """Describe the worker by another name, and its environments by other ids and deadlines,
        from now on."""
        self.name = name
        self.env_ids = env_ids
        self.deadlines = deadlines

    def send(self, *command: Any) -> None:
        """Send a command: the arguments of Worker.run. What the worker does
        not take at once is sent by poll, which also reports a worker that has died."""
        self.watch.restart()
        self.channel.send(command)

    def poll(self) -> Any:
        """Return the reply to a command, None if there is none yet.

        Raises WorkerError if the worker has raised, died or hung."""
        is_alive = self.process.is_alive()  # now, as it may end right after its last reply
        try:
            self.channel.flush()
            reply = self.channel.receive()
        except (EOFError, OSError):
            is_alive = False
            reply = None
        if isinstance(reply, PPOError):
            raise reply
        if reply is not None:
            return reply
        num_calls, call, environment = map(int, self.heartbeat)
        progress = (num_calls, self.channel.num_bytes)
        if progress != self.progress:
            self.progress = progress
            self.watch.restart()
        where = "as it started"
        if num_calls:
            where = f"in the {CALLS[call]} of {describe_environments(self.env_ids, environment)}"
        if not is_alive:
            raise WorkerError(f"{self.name} {self._describe_exit(where)}")
        deadline = self.deadlines.get(CALLS[call])
        if deadline and self.watch.read() > deadline.seconds:
            raise WorkerError(
                f"{self.name} hung {where}: over {deadline.seconds:g} s (--{deadline.flag})"
            )
        return None

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
        """Whether each of its environments was made and reset and has finished a step."""
        return self.heartbeat[NUM_CALLS] > 3 * len(self.env_indices)

    def ask_to_end(self) -> None:
        self.channel.send(None)

    def end(self, seconds: float = 0.0, watch: Stopwatch | None = None) -> None:
        """Wait for the process to end until a watch, by default a new one, shows so many seconds,
        then kill it with all that it has started; close what belongs to it. Once it has ended, do
        nothing."""
        watch = watch or Stopwatch()
        if self.process:
            # In several steps: what it has started may hold the pipe that tells of its end.
            while self.process.is_alive() and watch.read() < seconds:
                self.process.join(SECONDS_TO_LOOK)
            if self.process.is_alive():
                kill_tree(self.process.pid)
            self.process.join()
            with suppress(ValueError):  # the program's own code has waited for it
                self.process.close()
            self.process = None
            self.channel.close()


class LocalWorker(WorkerProcess):
    """Run a worker in the trainer's process, where it cannot be killed or timed out."""

    def start(self) -> None:
        self.channel: Any = None
        self.worker = self.make()
        self.commands: list[Any] = []

    def send(self, *command: Any) -> None:
        self.commands.append(command)

    def poll(self) -> Any:
        return self.worker.run(*self.commands.pop(0))

    def ask_to_end(self) -> None:
        pass

    def end(self, seconds: float = 0.0, watch: Stopwatch | None = None) -> None:
        self.worker.close()
