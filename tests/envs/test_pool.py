"""Workers that are killed or hang: no row of the rollout is wrong, and nothing leaks."""

import errno
import gc
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import ppo.envs.pool
import ppo.envs.worker_process
from ppo.envs.errors import WorkerError
from ppo.envs.pool import WorkerPool
from ppo.envs.seeding import Stream, integer_seed
from tests.running import children, deadlines, make_components

N = 5


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fails if what is done takes longer."""

    def give_up(*_: Any) -> None:
        raise AssertionError(f"not done within {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Rollouts:
    """Rollouts of the counting environment, each checked against those before it."""

    def __init__(
        self, num_workers: int, num_steps: int, inference: str = "worker", **options: Any
    ) -> None:
        self.events: list[dict[str, Any]] = []
        sizes = {"num_envs": N, "num_steps": num_steps, "total_steps": 10**7}
        self.parts = make_components("Counting-v0", **sizes, inference=inference)
        assert (self.parts.sampler is None) == (inference == "worker")
        self.workers = WorkerPool(
            self.parts.make_worker,
            N,
            num_workers,
            **options,
            on_event=self.on_event,
            sampler=self.parts.sampler,
        )
        self.num_collected = 0
        self.open: dict[int, tuple[int, int]] = {}  # by environment: episode and step to come

    def on_event(self, kind: str, **details: Any) -> None:
        self.events.append({"kind": kind, **details})

    def collect(self, seconds: float = 60.0) -> list[dict[str, Any]]:
        """The events of a rollout that is as it should be."""
        rollout = self.parts.rollout
        for table in vars(rollout).values():  # what nobody writes would show
            table[: -1 if len(table) > len(rollout.actions) else None] = 77
        self.events.clear()
        with within(seconds):
            info = self.workers.collect(self.num_collected + 1)
        lost = {
            i
            for event in self.events
            if event["kind"] == "worker_lost"
            for i in event["environments"]
        }
        assert sorted(info.reset_envs) == sorted(lost if self.num_collected else range(N))
        self.num_collected += 1
        episodes, lasts = [], []
        for i in range(N):
            ended = rollout.terminations[:, i] | rollout.truncations[:, i]
            first, step = self.open.get(i, (0, 0))
            if i in info.reset_envs:
                begun = int(self.parts.buffers.episode_counts[i]) - 1 - int(ended.sum())
                assert (
                    begun >= first + bool(i in self.open) if self.num_collected > 1 else begun >= 0
                )  # none repeats
                first, step = begun, 0
            episode, seed, start = first, seed_of(i, first), 0
            for t, (observation, reward, action) in enumerate(
                zip(
                    rollout.observations[:, i].tolist(),
                    rollout.rewards[:, i],
                    rollout.actions[:, i, 0],
                    strict=False,
                )
            ):
                assert observation == [seed, step], (t, i, self.events)
                assert reward == action + 10
                step += 1
                ends = step == 3 + seed % 7
                assert rollout.terminations[t, i] == (ends and seed % 2 == 1)
                assert rollout.truncations[t, i] == (ends and seed % 2 == 0)
                if ends:
                    is_whole = start or i in info.reset_envs  # else it began before this rollout
                    total = rollout.rewards[t - step + 1 : t + 1, i].sum() if is_whole else None
                    episodes.append((t, i, total, step))
                    lasts += [(t, i, [seed, step])] if seed % 2 == 0 else []
                    episode, step, start = episode + 1, 0, t + 1
                    seed = seed_of(i, episode)
            assert rollout.observations[-1, i].tolist() == [seed, step]
            assert self.parts.buffers.episode_counts[i] == episode + 1
            self.open[i] = (episode, step)
        assert len(episodes) == len(info.episodes)
        for found, expected in zip(
            info.episodes, sorted(episodes, key=lambda one: one[:2]), strict=True
        ):
            assert (found.step, found.environment, found.episode_length) == (
                *expected[:2],
                expected[3],
            )
            assert expected[2] in (None, found.episode_return)
        assert sorted((t, i, x.tolist()) for t, i, x, _ in info.last_observations) == sorted(lasts)
        return list(self.events)


def seed_of(environment: int, episode: int) -> int:
    return integer_seed(0, Stream.EPISODE, environment, episode) % 2**16


@contextmanager
def in_its_midst(
    rollouts: Rollouts, number: int, strike: Callable[[int], object], num_calls: int
) -> Iterator[None]:
    """While what follows is done, strike a worker's process once it has made so many more calls."""
    worker = rollouts.workers.workers[number]
    until, struck, is_over = int(worker.heartbeat[0]) + num_calls, [], threading.Event()

    def watch() -> None:
        while not is_over.is_set():
            if worker.heartbeat[0] >= until:
                struck.append(worker.process.pid)
                strike(worker.process.pid)
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    assert struck


def kill(pid: int) -> None:
    assert pid > 0
    os.kill(pid, signal.SIGKILL)


def stop(pid: int) -> None:
    assert pid > 0
    os.kill(pid, signal.SIGSTOP)


@pytest.fixture
def by_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that start at once, for they import nothing."""
    fork(monkeypatch)


def fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ppo.envs.worker_process, "PROCESSES", multiprocessing.get_context("fork"))


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("inference", "number", "is_busy", "strike", "cause"),
    [
        ("worker", 0, True, kill, "SIGKILL"),
        ("worker", 2, False, kill, "SIGKILL"),
        ("worker", 1, True, stop, "hung"),
        ("learner", 1, True, kill, "SIGKILL"),
        ("learner", 2, True, stop, "hung"),
        ("learner", 0, False, stop, "hung"),
    ],
)
def test_whichever_worker_is_lost_only_its_environments_begin_anew(
    inference: str,
    number: int,
    is_busy: bool,
    strike: Callable[[int], None],
    cause: str,
    by_forks: None,
) -> None:
    rollouts = Rollouts(3, 800, inference, deadlines=deadlines(0.5, 0.5))
    with rollouts.workers:
        rollouts.collect()
        if is_busy:
            with in_its_midst(rollouts, number, strike, 100):
                events = rollouts.collect()
        else:
            strike(rollouts.workers.workers[number].process.pid)
            events = rollouts.collect()
        assert [(event["kind"], event["worker"]) for event in events] == [
            ("worker_lost", number),
            ("worker_replaced", number),
        ]
        assert cause in events[0]["cause"]
        assert rollouts.collect() == []


def test_a_worker_lost_too_often_ends_it(by_forks: None) -> None:
    rollouts = Rollouts(num_workers=2, num_steps=20, max_losses=3)
    with rollouts.workers:
        rollouts.collect()
        for number in (0, 1, 1):
            kill(rollouts.workers.workers[number].process.pid)
            assert len(rollouts.collect()) == 2
        kill(rollouts.workers.workers[1].process.pid)
        problem = (
            "workers were lost 4 times within ten minutes, most recently because .*SIGKILL.*: give "
            "a greater --max_losses, or .* wrapper"
        )
        with pytest.raises(WorkerError, match=problem):
            rollouts.workers.collect(9)


def test_a_worker_that_the_system_does_not_replace_is_named(
    by_forks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(worker: Any) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    rollouts = Rollouts(num_workers=2, num_steps=20)
    with rollouts.workers:
        rollouts.collect()
        monkeypatch.setattr(ppo.envs.worker_process.WorkerProcess, "start", start)
        kill(rollouts.workers.workers[1].process.pid)
        words = r"1 cannot be replaced \(Too many open files\): worker 1 was killed by SIGKILL"
        with pytest.raises(WorkerError, match=words):
            rollouts.workers.collect(2)


def test_losses_of_ten_minutes_ago_are_forgotten(
    by_forks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    minutes = count(5, 5)
    clock = SimpleNamespace(monotonic=lambda: 60.0 * next(minutes))
    rollouts = Rollouts(num_workers=2, num_steps=20, max_losses=1)
    with rollouts.workers:
        rollouts.collect()
        monkeypatch.setattr(ppo.envs.pool, "time", clock)
        for _ in range(3):
            kill(rollouts.workers.workers[1].process.pid)
            rollouts.collect()  # twice five minutes: a loss and a replacement


def test_a_worker_that_never_came_to_a_step_is_not_replaced(by_forks: None) -> None:
    rollouts = Rollouts(num_workers=2, num_steps=20)
    with rollouts.workers:
        kill(rollouts.workers.workers[0].process.pid)
        rollouts.workers.workers[0].process.join()
        assert not rollouts.workers.workers[0].has_stepped
        with pytest.raises(WorkerError, match="worker 0 was killed by SIGKILL"):
            rollouts.workers.collect(1)


class Losses(RuleBasedStateMachine):
    """Any order of rollouts and blows."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        patch = self.stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(ppo.envs.pool, "SECONDS_TO_CLOSE", 0.2)
        fork(patch)
        self.is_closed = False

    @initialize(num_workers=st.integers(1, 4), inference=st.sampled_from(["worker", "learner"]))
    def open(self, num_workers: int, inference: str) -> None:
        patient = {"deadlines": deadlines(0.4, 0.6), "max_losses": 99}
        self.rollouts = Rollouts(num_workers, 30, inference, **patient)
        self.rollouts.collect()

    @rule()
    def collect(self) -> None:
        if not self.is_closed:
            self.rollouts.collect(seconds=30)

    @rule(number=st.integers(0, 3))
    def kill_one(self, number: int) -> None:
        self.strike(number, signal.SIGKILL)

    @rule(number=st.integers(0, 3))
    def stop_one(self, number: int) -> None:
        self.strike(number, signal.SIGSTOP)

    @rule(number=st.integers(0, 3), wait=st.sampled_from([0.0, 0.001, 0.003]))
    def kill_one_soon(self, number: int, wait: float) -> None:
        """It may be before, in or after the rollout."""
        if self.is_closed:
            return
        timer = threading.Timer(wait, self.strike, (number, signal.SIGKILL))
        timer.start()
        self.rollouts.collect(seconds=30)
        timer.join()

    @rule()
    def close(self) -> None:
        self.end()

    @invariant()
    def no_process_outlives_the_pool(self) -> None:
        if self.is_closed:
            workers = self.rollouts.workers.workers
            assert not any(worker.process and worker.process.is_alive() for worker in workers)

    def strike(self, number: int, blow: signal.Signals) -> None:
        workers = self.rollouts.workers.workers
        if not self.is_closed:
            process = workers[number % len(workers)].process
            pid = process and process.pid
            with suppress(ProcessLookupError):  # it is dead already
                if pid:  # else it is about to start; to kill 0 would be to kill all of the tests
                    os.kill(pid, blow)

    def end(self) -> None:
        if hasattr(self, "rollouts") and not self.is_closed:
            self.is_closed = True
            with within(10):
                self.rollouts.workers.__exit__(None, None, None)

    def teardown(self) -> None:
        try:
            self.end()
        finally:
            self.stack.close()


TestLosses = pytest.mark.slow(Losses.TestCase)
TestLosses.settings = settings(
    max_examples=12,
    stateful_step_count=8,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


def held() -> dict[str, int]:
    """Count what this process holds and might leak."""
    gc.collect()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "tasks": len(os.listdir("/proc/self/task")),
        "children": len(children()),
        "shared files": len(os.listdir("/dev/shm")),
    }


def resident() -> int:
    """Bytes of memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_and_close(times: int, num_workers: int, num_rollouts: int) -> None:
    parts = make_components("Counting-v0", num_envs=2, num_steps=4)
    for _ in range(times):
        with WorkerPool(parts.make_worker, 2, num_workers) as workers:
            for iteration in range(num_rollouts):
                workers.collect(iteration + 1)


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("times", "num_workers", "num_rollouts", "is_forked"),
    [
        (200, 0, 1, False),
        (20, 1, 0, False),
        (40, 1, 1, True),
        pytest.param(200, 1, 1, False, marks=pytest.mark.slow),
    ],
)
def test_pools_that_were_opened_and_closed_leave_nothing(
    times: int,
    num_workers: int,
    num_rollouts: int,
    is_forked: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if is_forked:
        fork(monkeypatch)
    if not num_rollouts:
        monkeypatch.setattr(ppo.envs.pool, "SECONDS_TO_CLOSE", 0.1)  # they are killed as they start
    open_and_close(2, num_workers, num_rollouts)
    before, memory = held(), resident()
    open_and_close(times, num_workers, num_rollouts)
    time.sleep(0.1)
    after = held()
    assert all(after[name] <= before[name] for name in before), (before, after)
    assert resident() - memory < 5e6
