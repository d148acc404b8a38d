"""Ctrl-C and termination, at a moment that suits the trainer."""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any

URGENT = (signal.SIGTERM, signal.SIGUSR1)  # from who takes the machine away soon


class Terminated(BaseException):
    """An urgent signal; no Exception, lest an environment or a loss of the user's own be taken for its cause."""


class StopSignals(AbstractContextManager):
    """Until its context is left, signals are only noted; but if one may be heeded at once, a second SIGINT interrupts,
    and where interruptible has been entered an urgent one raises Terminated."""

    def __init__(self, at_once: bool = True) -> None:
        self.received: signal.Signals | None = None
        self.may_raise, self.at_once = False, at_once
        self.before = {
            number: signal.signal(number, self._note) for number in (signal.SIGINT, *URGENT)
        }

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Work that nothing depends on until it is done. Raises Terminated, also for what came before it."""
        self.may_raise = self.at_once
        try:
            if self.received in URGENT and self.at_once:
                raise Terminated
            yield
        finally:
            self.may_raise = False

    def agree_to_stop(self, gather: Callable[[Any], list[Any]]) -> bool:
        """Whether to stop, for any of those has been told to of whom gather brings what they have received. What comes
        meanwhile is for the next time, lest this one stop and the others not."""
        agreed = next(filter(None, gather(self.received)), None)
        self.received = agreed or self.received
        return agreed is not None

    def __exit__(self, *exception: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received == number == signal.SIGINT and self.at_once:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
        if number in URGENT and self.may_raise:
            self.may_raise = False  # once is enough
            raise Terminated
