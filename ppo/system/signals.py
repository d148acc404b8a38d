"""Handle Ctrl-C and termination when the trainer is ready for them."""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

# The machine will be taken away soon, or the terminal is gone.
URGENT = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


class Terminated(BaseException):
    """An urgent signal arrived. Not an Exception, so that the user's environment or loss does not
    catch it."""


class StopSignals(AbstractContextManager["StopSignals"]):
    """Record SIGINT and urgent signals instead of ending the process, until the context is left.

    Urgent signals that were ignored before (SIGHUP under nohup) stay ignored.
    With at_once=True a second SIGINT raises KeyboardInterrupt, and an urgent signal raises
    Terminated inside interruptible(). With at_once=False (several ranks) nothing is raised: all
    ranks agree to stop together. Raises ValueError outside of Python's main thread."""

    may_raise = False
    received: signal.Signals | None = None

    def __init__(self, at_once: bool = True) -> None:
        self.at_once = at_once
        urgent = [number for number in URGENT if signal.getsignal(number) != signal.SIG_IGN]
        self.handlers_before = {
            number: signal.signal(number, self._record) for number in (signal.SIGINT, *urgent)
        }

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Mark work that an urgent signal may abandon half-way, if at_once is True: raises
        Terminated, also for a signal received before."""
        self.may_raise = self.at_once
        try:
            if self.at_once and self.received in URGENT:
                raise Terminated
            yield
        finally:
            self.may_raise = False

    def agree_to_stop(self, gather: Callable[[Any], list[Any]]) -> bool:
        """Return whether any rank has received a signal, the same in all ranks. gather: from this
        rank's value to a list of all ranks'. A signal that arrives meanwhile counts the next
        time."""
        for received in filter(None, gather(self.received)):
            self.received = received
            return True
        return False

    def __exit__(self, *exception: object) -> None:
        for number, handler in self.handlers_before.items():
            signal.signal(number, handler)

    def _record(self, number: int, frame: object) -> None:
        if self.at_once and self.received == number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
        if self.may_raise and number in URGENT:
            self.may_raise = False  # once is enough
            raise Terminated
