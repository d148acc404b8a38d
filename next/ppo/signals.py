"""Signals that end a run: a handler only sets a flag, which the loop and all that wait look at."""

import signal
import threading
from types import FrameType
from typing import Any

HEARD = ("SIGINT", "SIGTERM", "SIGUSR1", "SIGHUP")


class StopSignals:
    """Note signals while the context lasts. A first Ctrl-C lets the iteration finish; a second one,
    or another signal, is urgent."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self.is_urgent = False
        self.previous: dict[str, Any] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():  # only there can they be heard
            for name in HEARD:
                number = getattr(signal, name)
                if signal.getsignal(number) != signal.SIG_IGN:  # as by nohup
                    self.previous[name] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        for name, handler in self.previous.items():
            signal.signal(getattr(signal, name), handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        is_second = self.received is not None
        self.is_urgent = is_second or number != signal.SIGINT
        self.received = self.received or signal.Signals(number)

    def urgent(self) -> bool:
        """Return whether to stop at once rather than at the end of the iteration."""
        return self.is_urgent

    def any(self) -> bool:
        """Return whether there was a signal."""
        return self.received is not None
