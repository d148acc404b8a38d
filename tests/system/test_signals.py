"""When a signal interrupts work; tests/end_to_end/test_stop.py has whole processes."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ppo.errors import Interrupted
from ppo.system.signals import STOPPING, URGENT, StopSignals, Terminated
from tests.running import ROOT


def test_a_signal_is_recorded_and_the_handlers_are_restored() -> None:
    before = [signal.getsignal(each) for each in STOPPING]
    for number in STOPPING:
        with StopSignals() as stop:
            assert stop.received is None
            signal.raise_signal(number)
            assert stop.received == number
    assert [signal.getsignal(each) for each in STOPPING] == before


def test_a_second_interrupt_raises_at_once() -> None:
    with StopSignals():
        signal.raise_signal(signal.SIGINT)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)


def test_an_urgent_signal_interrupts_only_interruptible_work() -> None:
    reached = []
    number = signal.SIGTERM
    with StopSignals() as stop:
        with stop.raising(*URGENT):
            reached.append("not asked to")
        with pytest.raises(Terminated), stop.raising(*URGENT):  # noqa: PT012, all of it is interruptible
            try:
                signal.raise_signal(number)
                pytest.fail("it went on")
            finally:
                signal.raise_signal(number)  # once is enough
                reached.append("cleaned up")
        signal.raise_signal(number)
        reached.append("saved")
        with pytest.raises(Terminated), stop.raising(*URGENT):
            pytest.fail("it was asked to end before")
        assert stop.received == number
    assert reached == ["not asked to", "cleaned up", "saved"]
    assert not issubclass(Terminated, Exception)


def test_a_first_interrupt_lets_the_iteration_end() -> None:
    with StopSignals() as stop, stop.raising(*URGENT):
        signal.raise_signal(signal.SIGINT)
        assert stop.received == signal.SIGINT


def test_the_first_signal_stands_and_an_urgent_one_after_it_hurries() -> None:
    with StopSignals() as stop:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Terminated), stop.raising(*URGENT):
            pytest.fail("SIGTERM does not wait for an iteration")
        assert stop.received == signal.SIGINT


@pytest.mark.parametrize("number", STOPPING)
def test_any_signal_cuts_short_what_can_be_done_again(number: signal.Signals) -> None:
    error = KeyboardInterrupt if number == signal.SIGINT else Interrupted
    with StopSignals() as stop:
        with pytest.raises(error), stop.cutting_short("stopped it"):
            signal.raise_signal(number)
        with stop.raising(*STOPPING), stop.raising():
            signal.raise_signal(signal.SIGTERM)


def test_a_signal_that_arrives_while_ranks_agree_counts_the_next_time() -> None:
    with StopSignals() as stop:
        stop.at_once = False

        def gather(own: object) -> list[object]:
            signal.raise_signal(signal.SIGTERM)
            return [own, None]

        assert not stop.agree_to_stop(gather)  # or this rank would stop, and the others wait for it
        assert stop.agree_to_stop(gather)
    with StopSignals() as stop:
        stop.at_once = False
        assert stop.agree_to_stop(lambda own: [own, signal.SIGUSR1])
        assert stop.received == signal.SIGUSR1


def test_ranks_are_never_interrupted_one_by_one() -> None:
    with StopSignals() as stop:
        stop.at_once = False
        with stop.raising(*URGENT):
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        with stop.raising(*URGENT):
            pass
        assert stop.received == signal.SIGTERM


def run_script(text: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True)


KEPT = """
import atexit, os, signal, sys, threading
from ppo.system.signals import STOP
STOP.keep_until_exit()
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_process_that_is_over_ignores_signals_in_the_interpreters_shutdown(name: str) -> None:
    last = f"""
class Last:
    def __del__(self, kill=os.kill, id=os.getpid()):
        kill(id, signal.{name})

sys.last = Last()  # destroyed after the handlers
atexit.register(signal.raise_signal, signal.{name})
threading.Thread(target=lambda: signal.raise_signal(signal.{name})).start()
sys.exit(7)
"""
    done = run_script(KEPT + last)
    code = 130 if name == "SIGINT" else 7  # its second
    assert (done.returncode, done.stderr) == (code, "")


def test_a_third_interrupt_ends_a_process_with_its_last_words() -> None:
    script = """
with STOP:
    STOP.last_words = lambda: "all is lost"
    for _ in range(3):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            print("interrupted")
"""
    done = run_script(KEPT + script)
    assert (done.returncode, done.stderr) == (130, "all is lost\n")


def test_a_signal_in_an_import_is_not_raised_there(tmp_path: Path) -> None:
    module = (
        "import signal\ntry:\n    signal.raise_signal(signal.SIGTERM)\nfinally:\n    print('seen')"
    )
    (tmp_path / "module.py").write_text(module)
    script = f"""
sys.path.insert(0, {str(tmp_path)!r})
with STOP, STOP.cutting_short("stopped it"):
    import module
"""
    done = run_script(KEPT + script)
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "SIGTERM stopped it\n")
