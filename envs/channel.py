"""Messages to and from another process, of any size, without waiting for it."""

import pickle
import select
import socket
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.reduction import ForkingPickler
from struct import Struct
from typing import Any

SIZE = Struct("!Q")  # of the pickled message that follows
MAX_BYTES_AT_ONCE = 2**20


class Channel:
    """Send messages, objects that can be pickled, by one of two connected sockets.

    Where the socket does not block, no method waits. Otherwise the trainer would wait for ever, and
    for nothing but that, for a process that has stopped before it read a long message or in the
    midst of its reply."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.unsent = memoryview(b"")
        self.received = bytearray()  # of a message that has not arrived as a whole
        self.num_bytes = 0  # sent and received so far

    def send(self, message: Any) -> None:
        """Send a message. What does not fit in the socket is sent by further calls of flush."""
        pickled = ForkingPickler.dumps(message)
        self.unsent = memoryview(b"".join((self.unsent, SIZE.pack(len(pickled)), pickled)))
        self.flush()

    def flush(self) -> None:
        """Send what is still unsent, as far as it fits in the socket."""
        try:
            while self.unsent:
                count = self.end.send(self.unsent)
                self.unsent = self.unsent[count:]
                self.num_bytes += count
        except BlockingIOError:
            pass
        except OSError:  # nobody will read it; receive tells so, after what was sent before
            self.unsent = memoryview(b"")

    def receive(self) -> Any:
        """Return the next message, None if it has not arrived as a whole.

        Raises EOFError, or another OSError, if the other end is closed."""
        with suppress(BlockingIOError):
            while missing := self._num_missing():
                part = self.end.recv(min(missing, MAX_BYTES_AT_ONCE))
                if not part:
                    raise EOFError
                self.received += part
                self.num_bytes += len(part)
            pickled = memoryview(self.received)[SIZE.size :]
            self.received = bytearray()
            return pickle.loads(pickled)
        return None

    def _num_missing(self) -> int:
        """Return how many bytes of the message are missing; before its size is known, of that."""
        size = SIZE.size
        if len(self.received) >= size:
            size += SIZE.unpack_from(self.received)[0]
        return size - len(self.received)

    def close(self) -> None:
        self.end.close()


def wait_for_any(channels: Iterable[Channel], seconds: float) -> None:
    """Wait until one of the channels can receive, or send what is unsent, or for so long."""
    waiting = select.poll()
    for channel in channels:
        waiting.register(channel.end, select.POLLIN | (select.POLLOUT if channel.unsent else 0))
    waiting.poll(1000 * seconds)
