"""Defer SIGINT and SIGTERM to safe points."""

import atexit
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import Event, Lock, Thread, current_thread, main_thread
from types import FrameType
from typing import Any

from ppo.errors import Interrupted, PPOError

# The machine will be taken away soon, or the terminal is gone.
URGENT = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
STOPPING = (signal.SIGINT, *URGENT)
SECONDS_TO_OBEY = 0.8  # until a thread saves the run of a main thread that is blocked
SECONDS_TO_END = 0.5  # then, until it ends the process
SECONDS_BETWEEN_LOOKS = 0.05


class Terminated(BaseException):
    """An urgent signal arrived. Not an Exception, so that the user's environment or loss does not
    catch it."""


# What may be raised anywhere and is not an error of the code that is running.
RAISED_BY_SIGNALS = (KeyboardInterrupt, Terminated)


def stopped_at_once() -> str:
    """Say that a second Ctrl-C has ended the process: the default of StopSignals.last_words."""
    return "interrupted: stopped at once"


class StopSignals(AbstractContextManager["StopSignals"]):
    """Record SIGINT and urgent signals instead of ending the process, until the context is left.

    Urgent signals that were ignored before (SIGHUP under nohup) stay ignored. Contexts may be
    nested: the outermost installs the handlers and restores those before, unless they are kept
    until the process is over. Only in Python's main thread are there signals to record. Signals
    named by raising() are not only recorded: SIGINT raises KeyboardInterrupt, the others
    Terminated, once. A second SIGINT raises KeyboardInterrupt anywhere; a third ends a process that
    keeps the handlers on the spot, after saying last_words(). A thread hears signals, too. If the
    main thread does not obey one in time, whatever blocks it, this thread calls last_act(), which
    saves what there is to save and returns the error to end with. Then it interrupts work that is
    abandonable(), and ends a process that keeps the handlers. received: the first signal, or that
    of another process that learns the same policy. at_once: False for several, where nothing is
    raised: all of them agree to stop together. is_watched: False while other processes are waited
    for, which have such a thread of their own."""

    def __init__(self) -> None:
        self.is_kept = False
        self.depth = 0  # of nested contexts
        self.handlers_before: dict[int, Any] = {}
        self.watcher: Thread | None = None
        self.pipe: tuple[int, ...] = ()  # by which it hears the numbers of signals, in order
        self.is_over = Event()
        self.obeying = Lock()
        self.reminding = Lock()
        self._forget()

    def _forget(self) -> None:
        """Begin as if no signal had ever arrived."""
        self.received: signal.Signals | None = None
        self.waiting: set[signal.Signals] = set()  # until they may raise
        self.interrupts = 0
        self.arrived: list[signal.Signals] = []
        self.raises: tuple[signal.Signals, ...] = ()
        self.at_once = True
        self.is_watched = True
        self.is_finishing = False
        self.is_abandonable = False
        self.is_reminded = False  # by the thread, of the first signal
        self.is_ending = False
        self.last_words: Callable[[], str] = stopped_at_once
        self.last_act: Callable[[], PPOError] = self._stopped_command
        self.error: PPOError | None = None  # that last_act has returned
        self.ending = ""

    def __enter__(self) -> "StopSignals":
        if not self.handlers_before:
            self._forget()
        self._install()
        self.depth += 1
        return self

    def __exit__(self, *exception: object) -> None:
        self.depth -= 1
        if not self.depth and not self.is_kept:
            self._end_watcher()
            for number, handler in self.handlers_before.items():
                signal.signal(number, handler)
            self.handlers_before.clear()

    def keep_until_exit(self) -> None:
        """Record signals from now on until this process, a command's own, is over. Once no context
        is entered any more, a second SIGINT ends the process on the spot."""
        if not self.is_kept:
            self.is_kept = True
            self._install()
            signal.set_wakeup_fd(self.pipe[1], warn_on_full_buffer=False)
            # Python's last act is to restore the default actions: a signal would kill it then.
            atexit.register(self._ignore)

    @contextmanager
    def raising(self, *numbers: signal.Signals, ending: str = "") -> Iterator[None]:
        """Let these signals raise, if at_once is True, also those recorded before; none without
        numbers. Afterwards those before may raise again, unless a signal has arrived.

        ending: what Interrupted says has been stopped; given if an import may be cut short."""
        before = self.raises, self.ending
        self.raises, self.ending = numbers if self.at_once else (), ending
        try:
            self._raise_if_due()
            yield
        finally:
            self.raises, self.ending = () if self.received else before[0], before[1]

    @contextmanager
    def cutting_short(self, ending: str) -> Iterator[None]:
        """Let any signal end work that can be done again: SIGINT raises KeyboardInterrupt, others
        Interrupted. During an import a process that keeps the handlers ends on the spot instead.
        ending: what Interrupted says has been stopped."""
        try:
            with self.raising(*STOPPING, ending=ending):
                yield
        except Terminated:
            assert self.received
            raise Interrupted(self.received, ending) from None

    @contextmanager
    def finishing(self) -> Iterator[None]:
        """Let a first SIGINT wait until this work is finished, however long that takes."""
        self.is_finishing = True
        try:
            yield
        finally:
            self.is_finishing = False

    @contextmanager
    def abandonable(self) -> Iterator[None]:
        """Let a signal that has not been obeyed in time raise Terminated in this work, outside of
        imports; also raise what last_act returns in place of any Terminated. Afterwards there is
        nothing to save."""
        self.is_abandonable = True
        try:
            yield
        except Terminated:
            raise self.obey() from None
        finally:
            self.is_abandonable = False
            self.last_act = self._stopped_command
            with self.reminding:
                pass  # no reminder is on its way any more

    def obey(self) -> PPOError:
        """Call last_act, unless this or the other thread has done so; return its error."""
        with self.obeying:
            self.error = self.error or self.last_act()
            return self.error

    def agree_to_stop(self, gather: Callable[[Any], list[Any]]) -> bool:
        """Return whether any process that learns this policy has received a signal, the same in
        all. gather: from this one's value to a list of all of theirs. A signal that arrives
        meanwhile counts the next time."""
        for received in filter(None, gather(self.received)):
            self.received = received
            return True
        return False

    def _install(self) -> None:
        if current_thread() is not main_thread():
            return
        if not self.pipe:
            self.pipe = os.pipe()
            for descriptor in self.pipe:
                os.set_blocking(descriptor, False)
            self.is_over = Event()
            watcher = Thread(target=self._watch, args=(self.is_over,), daemon=True)
            with suppress(RuntimeError):  # no more threads are allowed: do without it
                watcher.start()
                self.watcher = watcher
        for number in STOPPING:
            before = signal.getsignal(number)
            if before != self._record and (number == signal.SIGINT or before != signal.SIG_IGN):
                # None: installed by something other than Python, which cannot restore it.
                self.handlers_before.setdefault(number, before or signal.SIG_DFL)
                signal.signal(number, self._record)

    def _ignore(self) -> None:
        for number in self.handlers_before:
            signal.signal(number, signal.SIG_IGN)

    def _record(self, number: int, frame: FrameType | None) -> None:
        if self.is_ending:
            return
        if self.is_reminded:
            self.is_reminded = False
            if self.is_abandonable and not is_importing(frame):
                raise Terminated
            return
        arrived = signal.Signals(number)
        if self.is_kept:
            self._read()
        else:
            self.arrived.append(arrived)
        self._wake_watcher()
        self.received = self.received or next(iter(self.arrived), arrived)
        self.waiting.add(arrived)
        if arrived == signal.SIGINT:
            self.interrupts += 1
            if self.interrupts > 1 and self.at_once:
                self._interrupt_again()
        if arrived in self.raises and self.is_kept and self.ending and is_importing(frame):
            # What is raised in an import of torch may abort the process.
            if self.received == signal.SIGINT:
                self._end(stopped_at_once(), 130)
            interrupted = Interrupted(self.received, self.ending)
            self._end(str(interrupted), interrupted.exit_code)
        self._raise_if_due()

    def _interrupt_again(self) -> None:
        """Raise KeyboardInterrupt, or end a process that keeps the handlers, as it is over or has
        been interrupted twice before."""
        if self.is_kept and not self.depth:
            os._exit(130)
        if self.is_kept and self.interrupts > 2:
            self._end(self.last_words(), 130)
        raise KeyboardInterrupt

    def _raise_if_due(self) -> None:
        if self.waiting & {*self.raises}:
            is_interrupt = self.received == signal.SIGINT in self.raises
            self.raises = ()  # once is enough
            self.waiting.clear()
            raise KeyboardInterrupt if is_interrupt else Terminated

    def _stopped_command(self) -> PPOError:
        """Return the error to end with where there is nothing to save: the default of last_act."""
        assert self.received
        return Interrupted(self.received, "stopped the command at once")

    def _read(self) -> None:
        """Take note of signals in the pipe, which a process that keeps the handlers lets Python
        write. Handlers come later, during a call of C code such as an import, and then in the order
        of numbers."""
        with suppress(OSError):
            numbers = os.read(self.pipe[0], 4096)
            self.arrived += [signal.Signals(x) for x in numbers if x in self.handlers_before]

    def _wake_watcher(self) -> None:
        with suppress(OSError):  # the pipe is full, so that it is awake
            os.write(self.pipe[1], b"\0")

    def _watch(self, is_over: Event) -> None:
        """Do what the thread does until the contexts are left; see StopSignals."""
        pipe = select.poll()
        pipe.register(self.pipe[0], select.POLLIN)
        while not self.arrived:
            pipe.poll()
            if is_over.is_set():
                return
            self._read()
        deadline = time.monotonic() + SECONDS_TO_OBEY
        while time.monotonic() < deadline:
            if is_over.wait(SECONDS_BETWEEN_LOOKS):
                return
            self._read()
            may_finish = self.is_finishing and self.arrived == [signal.SIGINT]
            if may_finish or not (self.at_once and self.is_watched):
                deadline = time.monotonic() + SECONDS_TO_OBEY
        self.received = self.received or self.arrived[0]
        error = self.obey()
        while not is_over.is_set():
            with self.reminding:
                if self.is_abandonable:
                    self.is_reminded = True
                    signal.pthread_kill(main_thread().ident or 0, self.received)
            is_over.wait(SECONDS_TO_END)
            if self.is_kept:
                message = self.last_words() if self.interrupts > 1 else str(error)
                # Outside of all contexts the command itself has said it.
                self._end(message if self.depth else "", error.exit_code)

    def _end_watcher(self) -> None:
        """End the thread, unless it is saving on a disk that does not answer."""
        self.is_over.set()
        if self.watcher:
            self._wake_watcher()
            self.watcher.join(SECONDS_TO_OBEY)
            self.watcher = None
        for descriptor in self.pipe:
            os.close(descriptor)
        self.pipe = ()

    def _end(self, message: str, exit_code: int) -> None:
        """End the process on the spot, with a message, if that can be written at once."""
        self.is_ending = True
        with suppress(OSError):
            # Not print: what is interrupted may be printing, which cannot be nested.
            if message and select.select([], [2], [], 0)[1]:
                os.write(2, f"{message}\n".encode())
        os._exit(exit_code)


def is_importing(frame: FrameType | None) -> bool:
    """Return whether a module is being imported where a frame is executed."""
    while frame and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


STOP = StopSignals()  # those of this process
