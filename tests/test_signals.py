"""When a signal interrupts training."""

import signal

import pytest

from ppo.system.signals import URGENT, StopSignals, Terminated


@pytest.mark.parametrize("number", [signal.SIGINT, *URGENT])
def test_a_signal_is_recorded_and_the_handlers_are_restored(number: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, *URGENT)]
    with StopSignals() as stop:
        assert stop.received is None
        signal.raise_signal(number)
        assert stop.received == number
        if number != signal.SIGINT:
            signal.raise_signal(number)  # as often as it comes
    assert [signal.getsignal(each) for each in (signal.SIGINT, *URGENT)] == before


def test_a_second_interrupt_raises_at_once() -> None:
    with StopSignals():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", URGENT)
def test_an_urgent_signal_interrupts_only_interruptible_work(number: signal.Signals) -> None:
    reached = []
    with StopSignals() as stop:
        with stop.interruptible():
            reached.append("not asked to")
        with pytest.raises(Terminated), stop.interruptible():  # noqa: PT012, all of it is interruptible
            try:
                signal.raise_signal(number)
                pytest.fail("it went on")
            finally:
                signal.raise_signal(number)  # once is enough
                reached.append("cleaned up")
        signal.raise_signal(number)
        reached.append("saved")
        with pytest.raises(Terminated), stop.interruptible():
            pytest.fail("it was asked to end before")
        assert stop.received == number
    assert reached == ["not asked to", "cleaned up", "saved"]
    assert not issubclass(Terminated, Exception)


def test_a_first_interrupt_lets_the_iteration_end() -> None:
    with StopSignals() as stop, stop.interruptible():
        signal.raise_signal(signal.SIGINT)
        assert stop.received == signal.SIGINT


def test_a_signal_that_arrives_while_ranks_agree_counts_the_next_time() -> None:
    with StopSignals(at_once=False) as stop:

        def gather(own: object) -> list[object]:
            signal.raise_signal(signal.SIGTERM)
            return [own, None]

        assert not stop.agree_to_stop(gather)  # or this rank would stop, and the others wait for it
        assert stop.agree_to_stop(gather)
    with StopSignals(at_once=False) as stop:
        assert stop.agree_to_stop(lambda own: [own, signal.SIGUSR1])
        assert stop.received == signal.SIGUSR1


def test_ranks_are_never_interrupted_one_by_one() -> None:
    with StopSignals(at_once=False) as stop:
        with stop.interruptible():
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        with stop.interruptible():
            pass
        assert stop.received == signal.SIGINT
