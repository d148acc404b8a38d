"""Ctrl-C and termination, at a moment that suits the trainer."""

import signal
from contextlib import AbstractContextManager
from types import FrameType


class StopSignals(AbstractContextManager):
    """Until its context is left, the first SIGINT or SIGTERM is only noted; a second SIGINT interrupts at once."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self.before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}

    def __exit__(self, *exception: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received == number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
