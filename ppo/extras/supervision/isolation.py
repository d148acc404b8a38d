"""Call functions that use environments in a separate process, so that crashes and hangs stay there.

While a command or train runs, environments are in processes of their own: in workers, unless
--num_workers=0 keeps training in the trainer's; in the isolated process for all else, such as the
first look and evaluations, with the same deadlines and messages. What a program calls outside of
train, such as load_policy and Policy.evaluate, uses environments in the program's process."""

import atexit
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing.reduction import ForkingPickler
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ppo.envs.channel import wait_for_any
from ppo.envs.errors import worker_error
from ppo.envs.heartbeat import HEARTBEAT, START
from ppo.envs.shared_memory import SharedArray
from ppo.envs.worker_process import WorkerProcess
from ppo.errors import PPOError
from ppo.extras.supervision.flags import TimeoutFlags
from ppo.guard import Deadline, Guard, OnProgress
from ppo.system.hardware import within_limits

if TYPE_CHECKING:
    from ppo.config.config import Config

T = TypeVar("T")


class Caller:
    """Call functions, as the worker of the isolated process.

    progress: of the function that is called; other arguments are those of Worker."""

    def __init__(self, env_indices: range, heartbeat: SharedArray, progress: SharedArray) -> None:
        import ppo.envs.make  # noqa: F401, heavy: while the caller, too, gets ready

        HEARTBEAT.share(heartbeat.array)
        self.progress = progress.array

    def run(self, path: Sequence[str], pickled: bytes, has_progress: bool) -> tuple[Any]:
        """Return (result,) of a function: a tuple, since None would mean "no reply yet".

        path: the caller's sys.path, which may have grown since this process was started; pickled: a
        function, its arguments and its options; has_progress: whether it takes on_progress. Errors
        other than PPOError are raised as WorkerError."""
        HEARTBEAT.beat(START)
        sys.path += [folder for folder in path if folder not in sys.path]
        try:
            function, arguments, options = pickle.loads(pickled)
            if has_progress:
                options["on_progress"] = self.progress.fill
            return (function(*arguments, **options),)
        except PPOError:
            raise
        except BaseException as error:
            raise worker_error("the environment", error) from error

    def close(self) -> None:
        """Do nothing: the functions close their environments themselves."""


class Isolation(Guard):
    """Call functions in the isolated process between start() and close(), otherwise in this one.

    A process that is lost is replaced."""

    def __init__(self) -> None:
        self.is_on = False
        self.lock = RLock()  # a process answers one call after the other
        self.process: WorkerProcess | None = None

    def deadlines(self, config: Any) -> Mapping[str, Deadline]:
        """Return a deadline for each call."""
        flags = TimeoutFlags.of(config)
        step = Deadline(flags.step_timeout, "step_timeout")
        reset = Deadline(flags.reset_timeout, "reset_timeout")
        return {"step": step, "render": step, "start": reset, "reset": reset, "close": reset}

    def start(self) -> None:
        """Start the process, unless it runs; it gets ready while the caller continues. Raises
        ConfigError if it cannot be made."""
        if not self.is_on:
            atexit.register(self.close)  # before multiprocessing waits for it
            self.is_on = True
        if self.process and not self.process.process.is_alive():
            self._end()
        if not self.process:
            with within_limits("the process in which environments are tried and evaluated"):
                self.progress = SharedArray((1,), np.int64)
                make = partial(Caller, progress=self.progress)
                self.process = WorkerProcess(make, range(1), [""], number=0)

    def call(
        self,
        purpose: str,
        config: "Config",
        function: Callable[..., T],
        *arguments: Any,
        on_progress: OnProgress | None = None,
        **options: Any,
    ) -> T:
        """Do the same in the isolated process, where the function and its arguments are copies.
        on_progress: called again and again with the latest progress.

        Raises WorkerError if the function raises, crashes or hangs; a PPOError is passed on
        unchanged."""
        if not self.is_on:
            if on_progress:
                options["on_progress"] = on_progress
            return function(*arguments, **options)
        with self.lock:
            self.start()
            process: Any = self.process
            process.reassign(purpose, [config.env_name], self.deadlines(config))
            progress = self.progress.array
            progress[0] = 0
            pickled = bytes(ForkingPickler.dumps((function, arguments, options)))
            try:
                process.send(sys.path, pickled, on_progress is not None)
                while (reply := process.poll()) is None:
                    wait_for_any([process.channel], 0.05)
                    if on_progress:
                        on_progress(int(progress[0]))
            except BaseException:  # also a signal: nobody waits for the result any more
                self._end()
                raise
            return reply[0]

    def close(self) -> None:
        """End the process, if there is one; not while another thread uses it."""
        atexit.unregister(self.close)
        with self.lock:
            self.is_on = False
            self._end()

    def _end(self) -> None:
        if self.process:
            self.process.end()
            self.process = None
