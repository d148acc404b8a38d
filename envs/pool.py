"""The trainer's handle on all workers: start, command, watch, replace, close."""

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from typing import Any

import numpy as np

from ppo.envs.episodes import OpenEpisode
from ppo.envs.errors import WorkerError
from ppo.envs.sampler import RolloutSampler
from ppo.envs.shared import PROCESSES, SharedArray
from ppo.envs.worker import PARENT_SIGNALS, RolloutInfo, Worker, run_worker

SECONDS_TO_CLOSE = 1.0
SECONDS_TO_NOTICE = 0.05
MOST_LOSSES = ((60, 3), (600, 10))  # in so many seconds of one worker, and of all together
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
NOTHING = OpenEpisode(0, None)


class WorkerPool(AbstractContextManager):
    """The environments of a run, spread evenly over worker processes; with none, stepped in this one.

    make_worker(environments, heartbeat) must be picklable. The processes get ready while the caller goes on; leaving the
    context ends them. A worker that is lost, for it died, raised or hung, is replaced, and its part of the rollout
    collected anew; on_event(kind, **details) is told. To hang is to take more seconds for a step than step_timeout, or
    for a reset or a start than reset_timeout; in this process nobody can tell."""

    def __init__(
        self,
        make_worker: Callable[..., Worker],
        num_envs: int,
        num_workers: int,
        step_timeout: float = 60.0,
        reset_timeout: float = 120.0,
        on_event: Callable[..., None] = lambda kind, **details: None,
        acting: RolloutSampler | None = None,
        numbers: Sequence[int] | None = None,
    ) -> None:
        """acting: acts for all environments of the run, if workers do not. numbers: what they are called, if not 0, 1
        and so on."""
        self.on_event, self.timeouts = on_event, (step_timeout, reset_timeout)
        self.acting = acting
        self.pending_iteration: int | None = None
        self.losses: list[tuple[float, int]] = []
        kind, count = (WorkerProcess, num_workers) if num_workers else (LocalWorker, 1)
        heartbeats = SharedArray((count, 2), np.int64)
        cuts = [number * num_envs // count for number in range(count + 1)]
        shares = [range(*cuts[n : n + 2]) for n in range(count)]
        if acting:  # each has its share of both groups, and a group's columns lie side by side
            shares = [range(n, num_envs, count) for n in range(count)]
            self.groups = (range((num_envs + 1) // 2), range((num_envs + 1) // 2, num_envs))
        names = range(num_envs) if numbers is None else numbers
        self.workers = [
            kind(make_worker, shares[n], heartbeats, n, [names[i] for i in shares[n]])
            for n in range(count)
        ]

    def restore(self, episodes: Sequence[OpenEpisode]) -> list[int]:
        """Go on with an open episode in each environment, as the last row of the rollout shows it. Returns those in
        which a new one had to begin instead."""
        for worker in self.workers:
            worker.send("restore", [episodes[index] for index in worker.environments])
        nothing = {worker.number: [NOTHING] * len(worker.environments) for worker in self.workers}
        replies = self._replies(
            self.workers, lambda worker: worker.send("restore", nothing[worker.number])
        )
        return sorted(index for begun in replies.values() for index in begun)

    def collect(self, iteration: int) -> RolloutInfo:
        """Have all environments fill the shared rollout. How they are spread over workers, and who acts, changes
        nothing but the rounding of the policy's arithmetic. Raises WorkerError if a worker cannot start, or is lost too
        often."""
        if self.acting:
            reports = self._collect_centrally(self.acting, iteration)
        else:
            if self.pending_iteration != iteration:
                self.collect_async(iteration)
            self.pending_iteration = None
            reports = self._replies(self.workers, lambda worker: worker.send("collect", iteration))
        parts = list(zip(*reports.values(), strict=True))
        episodes, begun = (sorted(x for part in parts[kind] for x in part) for kind in (0, 2))
        last_observations = sorted(
            (x for part in parts[1] for x in part), key=lambda last: last[:2]
        )
        outside, emulators = (
            {i: x for part in kind for i, x in part.items()} for kind in parts[3:]
        )
        return RolloutInfo(episodes, last_observations, begun, outside, emulators)

    def collect_async(self, iteration: int) -> None:
        """Have workers that act begin with a rollout while the caller goes on, until collect is called for it."""
        self.pending_iteration = iteration
        for worker in self.workers:
            worker.send("collect", iteration)

    def _collect_centrally(self, acting: RolloutSampler, iteration: int) -> dict[int, RolloutInfo]:
        """Step and act in turn: while the actions of one group of environments are computed, the other one steps. What
        lost workers should have done is done anew afterwards, by those in their places."""
        reports: dict[int, RolloutInfo] = {}
        firsts = [
            sum(index in self.groups[0] for index in worker.environments) for worker in self.workers
        ]
        cuts = [
            (0, first, len(worker.environments))
            for first, worker in zip(firsts, self.workers, strict=True)
        ]
        acting.begin(iteration)
        while missing := [worker for worker in self.workers if worker.number not in reports]:
            for worker in missing:
                worker.send("begin", iteration)
            alive = self._await_workers(missing)
            for turn in range(2 * acting.num_steps + 2):
                t, group = divmod(turn, 2)
                if turn > 1:  # what this group was asked for before
                    alive = self._await_workers(alive)
                if not alive:
                    break
                if t < acting.num_steps:
                    for columns in self._columns(alive, group, bool(reports)):
                        acting(t, columns)
                    for worker in alive:
                        worker.send("step", t, *cuts[worker.number][group : group + 2])
            for worker in alive:
                worker.send("end")
            reports |= self._replies(alive)
        return reports

    def __exit__(self, *exception: object) -> None:
        """End all workers, kindly first; returns within about a second whatever they are doing, at once if that is to
        be interrupted."""
        for worker in self.workers:
            worker.ask_to_end()
        deadline = time.monotonic() + SECONDS_TO_CLOSE * (exception[0] is not KeyboardInterrupt)
        for worker in self.workers:
            worker.end(deadline)

    def _await_workers(self, workers: Sequence["WorkerProcess"]) -> list["WorkerProcess"]:
        """Those who have done what they were asked for."""
        replies = self._replies(workers)
        return [worker for worker in workers if worker.number in replies]

    def _columns(self, workers: Sequence["WorkerProcess"], group: int, apart: bool) -> list[slice]:
        """Where a group of environments is in the rollout, if there are any: in one piece, or each worker's apart."""
        members = self.groups[group]
        if not apart:
            return [slice(members.start, members.stop)] if members else []
        parts = [[index for index in worker.environments if index in members] for worker in workers]
        return [slice(part[0], part[-1] + 1, len(self.workers)) for part in parts if part]

    def _replies(
        self,
        workers: Sequence["WorkerProcess"],
        again: Callable[["WorkerProcess"], None] | None = None,
    ) -> dict[int, Any]:
        """What workers reply to a command, by their numbers. Who is lost is replaced, and asked again, or left out."""
        replies: dict[int, Any] = {}
        missing = list(workers)
        while missing:
            if connections := [worker.connection for worker in missing if worker.connection]:
                wait(connections, SECONDS_TO_NOTICE)
            for worker in [*missing]:
                try:
                    reply = worker.poll(*self.timeouts)
                except WorkerError as loss:
                    self._replace(worker, loss)
                    again(worker) if again else missing.remove(worker)
                    continue
                if worker.replaced_at and worker.has_stepped:
                    seconds = time.monotonic() - worker.replaced_at
                    self.on_event(
                        "worker_replaced", worker=worker.number, seconds=round(seconds, 3)
                    )
                    worker.replaced_at = 0.0
                if reply is not None:
                    replies[worker.number] = reply
                    missing.remove(worker)
        return dict(sorted(replies.items()))

    def _replace(self, worker: "WorkerProcess", loss: WorkerError) -> None:
        """Put a new one in a lost worker's place. Raises WorkerError if it had not come to its first step, or if too
        many were lost."""
        now = time.monotonic()
        worker.end(now)
        cause, traceback = str(loss.args[0]), "".join(loss.args[1:])
        about = {"worker": worker.number, "environments": worker.names, "cause": cause}
        message = (
            f"worker {worker.number} was lost and is replaced: {cause}"
            if worker.has_ever_stepped
            else ""
        )
        self.on_event("worker_lost", message=message, **about, traceback=traceback)
        if not worker.has_ever_stepped:
            raise loss
        self.losses.append((now, worker.number))
        for (seconds, most), numbers in zip(
            MOST_LOSSES, ({worker.number}, range(len(self.workers))), strict=True
        ):
            count = sum(now - at < seconds and number in numbers for at, number in self.losses)
            if count > most:
                who = f"worker {worker.number} was" if len(numbers) == 1 else "workers were"
                raise WorkerError(
                    f"{who} lost {count} times within {seconds} s, at last for {cause}", traceback
                )
        worker.start()
        worker.replaced_at = now


class WorkerProcess:
    """A process that steps environments, as the trainer sees it. heartbeats: its own row is what the worker is doing, as
    ppo.envs.worker.Worker has it; names: what its environments are called."""

    def __init__(
        self,
        make: Callable[..., Worker],
        environments: range,
        heartbeats: SharedArray,
        number: int,
        names: Sequence[int],
    ) -> None:
        self.make, self.environments, self.heartbeats, self.number = (
            make,
            environments,
            heartbeats,
            number,
        )
        self.names = names
        self.heartbeat = heartbeats.array[number]
        self.has_ever_stepped, self.replaced_at = False, 0.0
        self.start()

    def start(self) -> None:
        self.heartbeat[:] = self.num_calls = 0
        self.connection, theirs = PROCESSES.Pipe()
        arguments = (
            self.make,
            self.environments,
            theirs,
            self.heartbeats,
            self.number,
            os.getpid(),
        )
        self.process = PROCESSES.Process(target=run_worker, args=arguments, daemon=True)
        resource_tracker.ensure_running()  # when it is started, signals are unblocked
        before, blocked = dict(os.environ), signal.pthread_sigmask(signal.SIG_BLOCK, PARENT_SIGNALS)
        # Workers inherit both: one thread each, and that signals wait until the worker passes them over.
        os.environ.update(ONE_THREAD)
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            os.environ.clear()
            os.environ.update(before)
        theirs.close()  # the worker has the only other end, so that its death is an end of file

    def send(self, *command: Any) -> None:
        self.since = time.monotonic()
        with suppress(OSError):  # that it has died, poll will tell
            self.connection.send(command)

    def poll(self, step_timeout: float, reset_timeout: float) -> Any:
        """What it replies; None if it has not yet. Raises WorkerError if it is lost."""
        try:
            if self.connection.poll():
                reply = self.connection.recv()
                self.has_ever_stepped |= self.has_stepped
                if isinstance(reply, WorkerError):
                    raise reply
                return reply
            is_alive = self.process.is_alive()  # a child of its own may hold the pipe open
        except (EOFError, OSError):
            is_alive = False
        self.has_ever_stepped |= self.has_stepped
        num_calls, call = map(int, self.heartbeat)
        name, limit = (
            ("reset", reset_timeout) if call < 0 or not num_calls else ("step", step_timeout)
        )
        now = time.monotonic()
        if num_calls != self.num_calls:
            self.num_calls, self.since = num_calls, now
        where = (
            f"in a {name} of environment {self.names[max(call, ~call)]}"
            if num_calls
            else "as it started"
        )
        if not is_alive:
            self.process.join(SECONDS_TO_CLOSE)
            code = self.process.exitcode or 0
            how = (
                f"was killed by {signal.Signals(-code).name}"
                if code < 0
                else f"ended with exit code {code}"
            )
            hint = "; if memory is short, use fewer environments" if -code == signal.SIGKILL else ""
            raise WorkerError(f"worker {self.number} {how} {where}{hint}")
        if now - self.since > limit:
            raise WorkerError(
                f"worker {self.number} hung {where}: over {limit:g} s (--{name}_timeout)"
            )
        return None

    @property
    def has_stepped(self) -> bool:
        """Whether it has come to a step: its environments are made and reset before that."""
        return bool(self.heartbeat[0] > 2 * len(self.environments))

    def ask_to_end(self) -> None:
        with suppress(OSError):  # it has died already
            self.connection.send(None)

    def end(self, deadline: float) -> None:
        """Wait for it to end until a time, then kill it."""
        self.process.join(max(0.0, deadline - time.monotonic()))
        self.process.kill()
        self.process.join()
        self.connection.close()


class LocalWorker(WorkerProcess):
    """The same in the trainer's own process: it can raise, but not be killed or timed by itself."""

    connection: Any = None

    def start(self) -> None:
        self.heartbeat[:] = 0
        self.worker = self.make(self.environments, self.heartbeat)
        self.commands: deque[tuple] = deque()

    def send(self, *command: Any) -> None:
        self.commands.append(command)

    def poll(self, step_timeout: float, reset_timeout: float) -> Any:
        method, *arguments = self.commands.popleft()
        try:
            return getattr(self.worker, method)(*arguments)
        finally:
            self.has_ever_stepped |= self.has_stepped

    def ask_to_end(self) -> None:
        for env in self.worker.envs:
            env.close()

    def end(self, deadline: float) -> None:
        pass
