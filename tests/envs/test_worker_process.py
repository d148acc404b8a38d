"""The process of a worker: what it inherits, and how its end is described."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ppo.envs.errors import WorkerError
from ppo.envs.heartbeat import CLOSE, RESET, START, STEP
from ppo.envs.shared_memory import SharedArray
from ppo.envs.worker_process import LocalWorker, WorkerProcess
from tests.envs.test_pool import within
from tests.running import deadlines

LONG = bytes(10**7)  # more than a socket or a pipe holds


class Puppet:
    """Stands for a Worker: does what it is told."""

    def __init__(self, env_indices: range, heartbeat: SharedArray) -> None:
        self.heartbeat = heartbeat.array

    def run(self, method: str, *arguments: Any) -> Any:
        return getattr(self, method)(*arguments)

    def look(self) -> dict[str, Any]:
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        threads = {name: os.environ.get(name) for name in names}
        return {"threads": threads, "sigint": signal.getsignal(signal.SIGINT)}

    def beat(self, num_calls: int, call: int, environment: int) -> bool:
        self.heartbeat[:3] = (num_calls, call, environment)
        return True

    def fail(self) -> None:
        raise WorkerError("it broke", "traceback")

    def exit(self, code: int) -> None:
        os._exit(code)

    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def repeat(self, text: bytes) -> bytes:
        return text

    def repeat_long(self) -> bytes:
        return LONG

    def sleep(self) -> None:
        time.sleep(60)

    def close(self) -> None:
        pass


@pytest.fixture
def start() -> Any:
    workers = []

    def make(
        kind: type[WorkerProcess] = WorkerProcess, limit: float = 60.0, make_worker: Any = Puppet
    ) -> WorkerProcess:
        workers.append(
            kind(
                make_worker,
                range(2),
                [7, 8],
                number=0,
                deadlines=deadlines(limit, 2 * limit),
            )
        )
        return workers[-1]

    yield make
    for worker in workers:
        worker.end(0.0)


def ask(worker: WorkerProcess, *command: Any) -> Any:
    worker.send(*command)
    return reply_of(worker)


def reply_of(worker: WorkerProcess) -> Any:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (reply := worker.poll()) is not None:
            return reply
        time.sleep(0.005)
    raise AssertionError("no reply")


def test_a_process_has_one_thread_and_ignores_ctrl_c(start: Callable[..., WorkerProcess]) -> None:
    seen = ask(start(), "look")
    assert [*seen["threads"].values()] == 3 * ["1"]
    assert seen["sigint"] == signal.SIG_IGN


def test_the_environments_of_a_local_worker_are_closed_before_others_are_made(
    start: Callable[..., WorkerProcess],
) -> None:
    worker = start(LocalWorker)
    worker.worker.close = lambda: closed.append(True)
    closed: list[bool] = []
    worker.end(0.0)
    assert closed == [True]


@pytest.mark.parametrize("kind", [WorkerProcess, LocalWorker])
def test_what_a_command_raises_is_raised_here(
    kind: type[WorkerProcess], start: Callable[..., WorkerProcess]
) -> None:
    with pytest.raises(WorkerError) as caught:
        ask(start(kind), "fail")
    assert caught.value.args == ("it broke", "traceback")


def test_a_program_may_wait_for_all_its_children_itself(
    start: Callable[..., WorkerProcess],
) -> None:
    def wait_for_all(*_: Any) -> None:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    before = signal.signal(signal.SIGCHLD, wait_for_all)
    try:
        worker = start()
        assert ask(worker, "repeat", b"x") == b"x"
        worker.ask_to_end()
        while Path(f"/proc/{worker.process.pid}").exists():
            time.sleep(0.01)
        worker.end()
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("calls", "command", "message"),
    [
        ((5, STEP, 1), ("exit", 3), "worker 0 ended with exit code 3 in the step of environment 8"),
        ((3, RESET, 0), ("kill",), "worker 0 was killed by SIGKILL in the reset of environment 7"),
        ((0, START, 0), ("kill",), "worker 0 was killed by SIGKILL as it started; if memory"),
    ],
)
def test_a_death_is_described(
    calls: tuple[int, int, int],
    command: tuple[Any, ...],
    message: str,
    start: Callable[..., WorkerProcess],
) -> None:
    worker = start()
    ask(worker, "beat", *calls)
    with pytest.raises(WorkerError, match=f"^{message}"):
        ask(worker, *command)


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (STEP, r"step of environment 8: over 0.2 s \(--step_timeout\)"),
        (START, r"start of environment 8: over 0.4 s \(--reset_timeout\)"),
        (CLOSE, r"close of environment 8: over 0.4 s \(--reset_timeout\)"),
    ],
)
def test_a_hang_is_found_by_a_heartbeat_that_stands_still(
    call: int, message: str, start: Callable[..., WorkerProcess]
) -> None:
    worker = start()
    ask(worker, "beat", 5, call, 1)
    worker.deadlines = deadlines(0.2, 0.4)
    with pytest.raises(WorkerError, match=f"^worker 0 hung in the {message}"):
        ask(worker, "sleep")


@pytest.mark.slow_but_first
@pytest.mark.parametrize("is_replying", [False, True])
def test_a_worker_that_stops_in_the_midst_of_a_message_hangs(
    is_replying: bool, start: Callable[..., WorkerProcess]
) -> None:
    worker = start()
    ask(worker, "beat", 5, STEP, 1)
    worker.deadlines = deadlines(0.2, 0.4)
    if is_replying:
        worker.send("repeat_long")
        time.sleep(0.5)  # until no more of the reply fits
    os.kill(worker.process.pid, signal.SIGSTOP)
    with within(20):
        if not is_replying:
            worker.send("repeat", LONG)
        with pytest.raises(WorkerError, match=r"^worker 0 hung in the step of environment 8: over"):
            reply_of(worker)
        worker.ask_to_end()
        worker.end(0.0)


class Heavy(Puppet):
    """Takes long to be sent."""

    def __init__(self, luggage: bytes, **arguments: Any) -> None:
        super().__init__(**arguments)


STOP = """
import os, signal, sys
if "--multiprocessing-fork" in sys.orig_argv:
    os.kill(os.getpid(), signal.SIG{})
"""


@pytest.mark.parametrize(
    ("number", "message"),
    [("STOP", r"hung as it started: over 0.4 s \(--reset_timeout\)"), ("KILL", "was killed by")],
)
def test_a_worker_that_stops_before_it_is_told_what_it_is(
    number: str,
    message: str,
    start: Callable[..., WorkerProcess],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "sitecustomize.py").write_text(STOP.format(number))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with within(20):
        worker = start(limit=0.2, make_worker=partial(Heavy, LONG))
        worker.send("look")
        with pytest.raises(WorkerError, match=f"^worker 0 {message}"):
            reply_of(worker)
