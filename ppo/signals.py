"""Ctrl-C and termination, at a moment that suits the trainer."""

import signal
from types import FrameType
from typing import Any


class StopSignals:
    """In its context the first SIGINT or SIGTERM is only noted; a second SIGINT interrupts at once."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    def __enter__(self) -> "StopSignals":
        self._before: dict[signal.Signals, Any] = {
            number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received == number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
