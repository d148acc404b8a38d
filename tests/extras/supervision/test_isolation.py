"""Calling functions in a process of its own."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from ppo.envs.errors import EnvironmentUnavailable, WorkerError
from ppo.envs.heartbeat import CLOSE, HEARTBEAT, STEP
from ppo.extras.supervision.flags import TimeoutFlags
from ppo.extras.supervision.isolation import Isolation
from ppo.guard import ignore

SOME = SimpleNamespace(env_name="Some-v0", step_timeout=60.0, reset_timeout=120.0)
IMPATIENT = SimpleNamespace(env_name="Some-v0", step_timeout=0.2, reset_timeout=0.4)


@pytest.fixture
def isolation() -> Iterator[Isolation]:
    result = Isolation()
    result.start()
    yield result
    result.close()


def work(episodes: int, on_progress: Callable[[int], object] = ignore) -> int:
    """Play some episodes, and return the number of the process that did."""
    for done in range(episodes):
        on_progress(done + 1)
        time.sleep(0.1)
    return os.getpid()


def repeat(text: str) -> str:
    time.sleep(0.05)
    return 2 * text


def refuse() -> None:
    raise EnvironmentUnavailable("there is none")


def die() -> None:
    HEARTBEAT.beat(STEP)
    os.kill(os.getpid(), signal.SIGKILL)


def hang(call: int) -> None:
    HEARTBEAT.beat(call)
    time.sleep(60)


def test_functions_are_called_in_one_process_and_tell_their_progress(isolation: Isolation) -> None:
    seen: list[int] = []
    first = isolation.call("work", SOME, work, 3, on_progress=seen.append)
    assert first != os.getpid()
    assert seen == sorted(seen)
    assert {1, 2} <= {*seen} <= {0, 1, 2, 3}
    assert isolation.call("work", SOME, work, episodes=0) == first


def test_errors_of_this_project_arrive_as_they_are_and_others_are_named(
    isolation: Isolation,
) -> None:
    with pytest.raises(EnvironmentUnavailable, match=r"^there is none$"):
        isolation.call("work", SOME, refuse)
    with pytest.raises(WorkerError, match=r"^the environment raised ValueError: invalid literal"):
        isolation.call("work", SOME, int, "x")
    assert isolation.call("work", SOME, int, "3") == 3  # in a new process


def test_a_death_is_named_and_the_process_replaced(isolation: Isolation) -> None:
    with pytest.raises(WorkerError, match=r"^the work was killed by SIGKILL in the step of .*Some"):
        isolation.call("the work", SOME, die)
    assert isolation.call("the work", SOME, work, 0)


def test_a_hang_is_named_and_ended(isolation: Isolation) -> None:
    process = isolation.call("work", SOME, work, 0)
    said = r"close of environment Some-v0: over 0.4 s \(--reset_timeout\)"
    with pytest.raises(WorkerError, match=f"^the work hung in the {said}"):
        isolation.call("the work", IMPATIENT, hang, CLOSE)
    assert not os.path.exists(f"/proc/{process}")


def test_nothing_is_left_after_it_is_closed(isolation: Isolation) -> None:
    process = isolation.call("work", SOME, work, 0)
    isolation.close()
    assert not os.path.exists(f"/proc/{process}")
    assert isolation.call("work", SOME, work, 0) == os.getpid()


def test_timeouts_are_of_a_run_and_not_of_what_is_learned() -> None:
    assert {*TimeoutFlags.names(scope="run")} == {"step_timeout", "reset_timeout"}


def test_threads_get_their_own_replies(isolation: Isolation) -> None:
    with ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(isolation.call, "work", SOME, repeat, text) for text in "abcdefgh"]
        found = [call.result(timeout=60) for call in calls]
    assert found == ["aa", "bb", "cc", "dd", "ee", "ff", "gg", "hh"]
