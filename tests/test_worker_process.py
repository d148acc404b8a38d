"""The process of a worker: what it inherits, and how its end is described."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from ppo.envs.errors import WorkerError
from ppo.envs.shared import SharedArray
from ppo.envs.worker_process import LocalWorker, WorkerProcess


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

    def beat(self, num_calls: int, call: int) -> bool:
        self.heartbeat[:2] = (num_calls, call)
        return True

    def fail(self) -> None:
        raise WorkerError("it broke", "traceback")

    def exit(self, code: int) -> None:
        os._exit(code)

    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def sleep(self) -> None:
        time.sleep(60)

    def close(self) -> None:
        pass


@pytest.fixture
def start() -> Any:
    workers = []

    def make(kind: type[WorkerProcess] = WorkerProcess, limit: float = 60.0) -> WorkerProcess:
        workers.append(
            kind(
                Puppet,
                range(2),
                [7, 8],
                number=0,
                timeouts={"step": limit, "reset": 2 * limit},
            )
        )
        return workers[-1]

    yield make
    for worker in workers:
        worker.end(0.0)


def ask(worker: WorkerProcess, *command: Any) -> Any:
    worker.send(*command)
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


@pytest.mark.parametrize("kind", [WorkerProcess, LocalWorker])
def test_it_has_stepped_once_every_environment_has_finished_a_step(
    kind: type[WorkerProcess], start: Callable[..., WorkerProcess]
) -> None:
    worker = start(kind)
    ask(worker, "beat", 6, 1)
    assert not worker.has_stepped
    ask(worker, "beat", 7, 0)
    assert worker.has_stepped


@pytest.mark.parametrize(
    ("calls", "command", "message"),
    [
        ((5, 1), ("exit", 3), "worker 0 ended with exit code 3 in a step of environment 8"),
        ((3, ~0), ("kill",), "worker 0 was killed by SIGKILL in a reset of environment 7; if mem"),
        ((0, 0), ("kill",), "worker 0 was killed by SIGKILL as it started; if memory is short"),
    ],
)
def test_a_death_is_described(
    calls: tuple[int, int],
    command: tuple[Any, ...],
    message: str,
    start: Callable[..., WorkerProcess],
) -> None:
    worker = start()
    ask(worker, "beat", *calls)
    with pytest.raises(WorkerError, match=f"^{message}"):
        ask(worker, *command)


@pytest.mark.parametrize(
    ("call", "message"),
    [(1, r"step of environment 8: over 0.2 s \(--step_timeout\)"), (~0, r"reset of .* 0.4 s")],
)
def test_a_hang_is_found_by_a_heartbeat_that_stands_still(
    call: int, message: str, start: Callable[..., WorkerProcess]
) -> None:
    worker = start()
    ask(worker, "beat", 5, call)
    worker.timeouts = {"step": 0.2, "reset": 0.4}
    with pytest.raises(WorkerError, match=f"^worker 0 hung in a {message}"):
        ask(worker, "sleep")
