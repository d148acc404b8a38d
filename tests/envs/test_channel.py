"""Messages between two processes, here between two ends in one."""

import socket
from collections.abc import Iterator

import pytest

from ppo.envs.channel import Channel, wait_for_any

LONG = bytes(10**6)  # more than a socket holds


@pytest.fixture
def channels() -> Iterator[tuple[Channel, Channel]]:
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    yield (Channel(ends[0]), Channel(ends[1]))
    for end in ends:
        end.close()


def carry(sender: Channel, receiver: Channel) -> object:
    while (message := receiver.receive()) is None:
        wait_for_any([sender, receiver], 1.0)
        sender.flush()
    return message


def test_messages_arrive_whole_and_in_order(channels: tuple[Channel, Channel]) -> None:
    here, there = channels
    assert there.receive() is None
    messages = [1, "two", LONG, [], {"four": LONG}]
    for message in messages:
        here.send(message)
    assert [carry(here, there) for _ in messages] == messages
    assert there.receive() is None
    assert here.num_bytes == there.num_bytes > 2 * len(LONG)


def test_both_may_send_long_messages_at_once(channels: tuple[Channel, Channel]) -> None:
    here, there = channels
    here.send(LONG)
    there.send([LONG])
    assert here.receive() is None
    assert carry(here, there) == LONG
    assert carry(there, here) == [LONG]


def test_the_last_message_of_an_end_that_was_closed_is_received(
    channels: tuple[Channel, Channel],
) -> None:
    here, there = channels
    here.send(LONG)
    there.send("last words")
    there.close()
    here.flush()
    assert here.receive() == "last words"
    with pytest.raises((EOFError, ConnectionError)):
        here.receive()
    here.send("to nobody")  # without an error
