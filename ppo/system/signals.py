"""Defer SIGINT and SIGTERM to safe points."""

import atexit
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

from ppo.errors import Interrupted

# The machine will be taken away soon, or the terminal is gone.
URGENT = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
STOPPING = (signal.SIGINT, *URGENT)


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
    until the process is over. Only in Python's main thread are there signals to record.
    Signals named by raising() are not only recorded: SIGINT raises KeyboardInterrupt, the others
    Terminated, once. A second SIGINT raises KeyboardInterrupt anywhere; a third ends a process that
    keeps the handlers on the spot, after saying last_words().
    received: the first signal, or that of another rank. at_once: False for several ranks, where
    nothing is raised: all of them agree to stop together."""

    def __init__(self) -> None:
        self.is_kept = False
        self.arrivals: int | None = None  # descriptor of a pipe with the signals' numbers, in order
        self.depth = 0  # of nested contexts
        self.handlers_before: dict[int, Any] = {}
        self._forget()

    def _forget(self) -> None:
        """Begin as if no signal had ever arrived."""
        self.received: signal.Signals | None = None
        self.waiting: set[signal.Signals] = set()  # until they may raise
        self.interrupts = 0
        self.raises: tuple[signal.Signals, ...] = ()
        self.at_once = True
        self.last_words: Callable[[], str] = stopped_at_once
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
            for number, handler in self.handlers_before.items():
                signal.signal(number, handler)
            self.handlers_before.clear()

    def keep_until_exit(self) -> None:
        """Record signals from now on until this process, a command's own, is over. Once no context
        is entered any more, a second SIGINT ends the process on the spot."""
        if not self.is_kept:
            self.is_kept = True
            self._install()
            self.arrivals, notified = os.pipe()
            for descriptor in (self.arrivals, notified):
                os.set_blocking(descriptor, False)
            signal.set_wakeup_fd(notified, warn_on_full_buffer=False)
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

    def agree_to_stop(self, gather: Callable[[Any], list[Any]]) -> bool:
        """Return whether any rank has received a signal, the same in all ranks. gather: from this
        rank's value to a list of all ranks'. A signal that arrives meanwhile counts the next
        time."""
        for received in filter(None, gather(self.received)):
            self.received = received
            return True
        return False

    def _install(self) -> None:
        if current_thread() is not main_thread():
            return
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
        arrived = signal.Signals(number)
        self.received = self.received or self._first() or arrived
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

    def _first(self) -> signal.Signals | None:
        """Return the first signal that has arrived, if that is known. Python calls the handlers of
        those that arrive during a call of C code, such as an import, in the order of numbers."""
        if self.arrivals is not None:
            with suppress(OSError):
                for number in os.read(self.arrivals, 4096):
                    if number in self.handlers_before:
                        return signal.Signals(number)
        return None

    def _end(self, message: str, exit_code: int) -> None:
        """End the process on the spot, with a message."""
        with suppress(OSError):
            # Not print: what is interrupted may be printing, which cannot be nested.
            os.write(2, f"error: {message}\n".encode())
        os._exit(exit_code)


def is_importing(frame: FrameType | None) -> bool:
    """Return whether a module is being imported where a frame is executed."""
    while frame and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


STOP = StopSignals()  # those of this process
