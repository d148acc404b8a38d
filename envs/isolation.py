"""Call functions that use environments in a separate process, so that crashes and hangs stay there.

While a command or train runs, environments are in processes of their own: in workers, unless
--num_workers=0 keeps training in the trainer's; in the isolated process for all else, such as the
first look and evaluations, with the same timeouts and messages. What a program calls outside of
train, such as load_policy and Policy.evaluate, uses environments in the program's process."""

import atexit
import pickle
import sys
from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

from ppo.envs.channel import wait_for_any
from ppo.envs.errors import worker_error
from ppo.envs.heartbeat import HEARTBEAT, PROGRESS, START
from ppo.envs.shared import SharedArray
from ppo.envs.worker_process import WorkerProcess
from ppo.errors import PPOError

OnProgress = Callable[[int], object]


def ignore(done: int) -> None:
    """Ignore progress: the default of on_progress."""


class Caller:
    """Call functions, as the worker of the isolated process. Its arguments are those of Worker."""

    def __init__(self, env_indices: range, heartbeat: SharedArray) -> None:
        import ppo.envs.make  # noqa: F401, heavy: while the caller, too, gets ready

        HEARTBEAT.share(heartbeat.array)

    def run(self, path: Sequence[str], pickled: bytes):
        """Return (result,) of a function: a tuple, since None would mean "no reply yet".

        path: the caller's sys.path, which may have grown since this process was started; pickled: a
        function, its arguments and its options. Errors other than PPOError are raised as
        WorkerError."""
        HEARTBEAT.beat(START)
        sys.path += [folder for folder in path if folder not in sys.path]
        try:
            function, arguments, options = pickle.loads(pickled)
            return (function(*arguments, **options),)
        except PPOError:
            raise
        except BaseException as error:
            raise worker_error("the environment", error) from error

    def close(self) -> None:
        """Do nothing: the functions close their environments themselves."""


class Isolation:
    """Call functions in the isolated process between start() and close(), otherwise in this one.

    A process that is lost is replaced."""

    def __init__(self) -> None:
        self.is_on = False
        self.process: WorkerProcess | None = None
        self.set_timeouts()

    def set_timeouts(self, step: float = 60.0, reset: float = 120.0) -> None:
        """Set the seconds after which the process counts as hung, as those of a worker."""
        self.timeouts = {"step": step, "reset": reset}

    def start(self) -> None:
        """Start the process, unless it runs; it gets ready while the caller continues."""
        if not self.is_on:
            atexit.register(self.close)  # before multiprocessing waits for it
            self.is_on = True
        if self.process and not self.process.process.is_alive():
            self._end()
        if not self.process:
            self.process = WorkerProcess(Caller, range(1), [""], number=0, timeouts=self.timeouts)

    def call(
        self,
        purpose: str,
        env_name: str,
        function: Callable[..., Any],
        *arguments,
        on_progress: OnProgress = ignore,
        **options,
    ):
        """Return function(*arguments, **options).

        purpose: names the call in error messages. on_progress: called with the latest value of
        HEARTBEAT.report_progress. Raises WorkerError if the function raises, crashes or hangs;
        a PPOError is passed on unchanged."""
        if not self.is_on:
            return function(*arguments, **options)
        self.start()
        process: Any = self.process
        process.reassign(purpose, [env_name], self.timeouts)
        process.heartbeat[PROGRESS] = 0
        try:
            process.send(sys.path, bytes(ForkingPickler.dumps((function, arguments, options))))
            while (reply := process.poll()) is None:
                wait_for_any([process.channel], 0.05)
                on_progress(int(process.heartbeat[PROGRESS]))
        except BaseException:  # also a signal: nobody waits for the result any more
            self._end()
            raise
        return reply[0]

    def close(self) -> None:
        """End the process at once, if there is one."""
        atexit.unregister(self.close)
        self.is_on = False
        self._end()

    def _end(self) -> None:
        if self.process:
            self.process.end()
            self.process = None


ISOLATION = Isolation()
