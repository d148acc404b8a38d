"""Start, command, replace and close the workers of a run."""

import time
from bisect import bisect_left
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any, NamedTuple

from ppo.envs.channel import wait_for_any
from ppo.envs.errors import WorkerError
from ppo.envs.sampler import RolloutSampler
from ppo.envs.worker import Episode, RolloutInfo, Worker
from ppo.envs.worker_process import LocalWorker, WorkerProcess
from ppo.extensions import NOTHING
from ppo.guard import Deadline
from ppo.system.clock import Stopwatch
from ppo.system.hardware import core_numbers

SECONDS_TO_CLOSE = 1.0
SECONDS_TO_NOTICE = 0.05  # a worker that has died or hangs
SECONDS_OF_LOSSES = 600  # in which they are counted


class Half(NamedTuple):
    """Half of the environments: one half steps while actions are sampled for the other."""

    columns: slice  # of all of them in the rollout
    members: list[range]  # of each worker, among its own environments


class WorkerPool(AbstractContextManager["WorkerPool"]):
    """Step the environments of a run, spread evenly over worker processes, or in this process.

    A worker that crashes, raises or hangs is replaced, its part of the rollout is collected again,
    and on_event(kind, **details) is called. A hang in this process cannot be detected."""

    def __init__(
        self,
        make_worker: Callable[..., Worker],
        num_envs: int,
        num_workers: int,
        *,
        deadlines: Mapping[str, Deadline] = NOTHING,
        max_losses: int = 10,
        on_event: Callable[..., None] = lambda kind, **details: None,
        sampler: RolloutSampler | None = None,
        first_id: int = 0,
        team_size: int = 1,
        steps_whole: bool = False,
    ) -> None:
        """Start the workers, without waiting until they are ready.

        make_worker(env_indices=, heartbeat=): picklable; num_workers: 0 for this process;
        deadlines: of calls in ppo.envs.heartbeat.CALLS, after which a worker counts as hung;
        max_losses: of workers within ten minutes, after which another one ends the run; sampler:
        samples actions for all environments, if workers do not; first_id: the number of the first
        environment in the whole run; team_size: so many of them must have the same worker;
        steps_whole: of the workers. If there are as many workers as cores, and they sample actions,
        each stays on a core of its own."""
        self.on_event = on_event
        self.sampler: Any = sampler
        self.max_losses = max_losses
        self.losses: list[float] = []  # their times
        self.discarded: list[Episode] = []  # that lost workers have reported in this rollout
        kind = WorkerProcess if num_workers else LocalWorker
        num_workers = max(1, num_workers)
        if sampler and not steps_whole:
            # Each worker has environments of both halves, whose columns are in one piece.
            shares = [range(n, num_envs, num_workers) for n in range(num_workers)]
            self.halves = make_halves(num_envs, shares)
        else:
            num_teams = num_envs // team_size
            cuts = [n * num_teams // num_workers * team_size for n in range(num_workers + 1)]
            shares = [range(*ends) for ends in pairwise(cuts)]
            self.halves = [Half(slice(0, num_envs), [range(len(own)) for own in shares])]
        cores = core_numbers()
        own_cores = not sampler and len(cores) == num_workers
        self.workers: list[WorkerProcess] = []
        try:
            for number, share in enumerate(shares):
                worker = kind(
                    make_worker,
                    share,
                    [first_id + index for index in share],
                    number=number,
                    deadlines=deadlines,
                    cores=cores[number : number + 1] if own_cores else (),
                )
                self.workers.append(worker)
        except BaseException as error:
            self.__exit__(type(error))  # the others have started
            raise

    def call(self, name: str, method: str, items: Sequence[Any], *arguments: Any) -> list[Any]:
        """Call a method of a WorkerPart in all workers, with those of the items, one for each
        environment, that are theirs, and further arguments; return the replies. One that replaces
        a lost worker is given no items."""
        for worker in self.workers:
            own = [items[index] for index in worker.env_indices]
            worker.send("call", name, method, own, *arguments)
        repeat = ("call", name, method, [], *arguments)
        return [*self._receive(self.workers, repeat=repeat).values()]

    def collect(self, iteration: int, env_attributes: Mapping[str, Any] = NOTHING) -> RolloutInfo:
        """Have all environments fill the shared rollout. env_attributes: of environments, in the
        episodes that begin in it.

        The number of workers, and who samples actions, changes nothing but rounding in the policy.
        Raises WorkerError if a worker cannot start or is lost too often."""
        self.discarded = []
        if self.sampler:
            infos = self._collect_centrally(iteration, env_attributes)
        else:
            command = ("collect", iteration, dict(env_attributes))
            for worker in self.workers:
                worker.send(*command)
            infos = self._receive(self.workers, repeat=command)
        return merge(infos.values())._replace(discarded=self.discarded)

    def _collect_centrally(
        self, iteration: int, env_attributes: Mapping[str, Any]
    ) -> dict[WorkerProcess, RolloutInfo]:
        """Collect a rollout with actions sampled in this process, and return the workers' reports.

        Workers that replace lost ones collect their part after the others have finished."""
        infos: dict[WorkerProcess, RolloutInfo] = {}
        self.sampler.begin(iteration)
        while missing := [worker for worker in self.workers if worker not in infos]:
            for worker in missing:
                worker.send("begin", dict(env_attributes))
            alive = self._step_double_buffered(self._receive(missing), bool(infos))
            for worker in alive:
                worker.send("end")
            infos |= self._receive(alive)
        return infos

    def _step_double_buffered(
        self, alive: Iterable[WorkerProcess], is_partial: bool
    ) -> Iterable[WorkerProcess]:
        """Step T times with double-buffered sampling; return the workers that were not lost.

        The two halves take turns: while one steps, actions are sampled for the other. Each worker
        has a command of both, whose replies come in order. is_partial:
        other workers have already finished this rollout, and their columns must not change."""
        for t in range(self.sampler.num_steps):
            for half in self.halves:
                if t > 0:
                    alive = self._receive(alive)  # for the step t - 1 of this half
                if not is_partial:
                    self.sampler(t, half.columns)
                for worker in alive:
                    members = half.members[worker.number]
                    if is_partial and members:
                        own = worker.env_indices[members.start : members.stop]
                        self.sampler(t, slice(own.start, own.stop, own.step))
                    worker.send("step", t, members)
        for _ in self.halves:
            alive = self._receive(alive)
        return alive

    def __exit__(self, *exception: object) -> None:
        """End all workers within about a second; after Ctrl-C, at once."""
        for worker in self.workers:
            worker.ask_to_end()
        seconds = 0.0 if exception[0] is KeyboardInterrupt else SECONDS_TO_CLOSE
        watch = Stopwatch()
        for worker in self.workers:
            worker.end(seconds, watch)

    def _receive(
        self, workers: Iterable[WorkerProcess], *, repeat: tuple[Any, ...] = ()
    ) -> dict[WorkerProcess, Any]:
        """Wait for the workers' replies, and return them by worker.

        A lost worker is replaced. repeat: the command, which its replacement is to carry out;
        without it, there is no reply of a lost worker."""
        replies: dict[WorkerProcess, Any] = {}
        missing = list(workers)
        while missing:
            if channels := [worker.channel for worker in missing if worker.channel]:
                wait_for_any(channels, SECONDS_TO_NOTICE)
            for worker in [*missing]:
                try:
                    reply = worker.poll()
                except WorkerError as loss:
                    self._replace(worker, loss)
                    if repeat:
                        worker.send(*repeat)
                    else:
                        missing.remove(worker)
                    continue
                if worker.replaced_at and worker.has_stepped:
                    seconds = round(time.monotonic() - worker.replaced_at, 3)
                    self.on_event("worker_replaced", worker=worker.number, seconds=seconds)
                    worker.replaced_at = 0.0
                if reply is not None:
                    replies[worker] = reply
                    missing.remove(worker)
        return {worker: replies[worker] for worker in self.workers if worker in replies}

    def _replace(self, worker: WorkerProcess, loss: WorkerError) -> None:
        """Replace a lost worker.

        Raises WorkerError if it never began a step, if too many workers were lost, or if the system
        does not let another one start."""
        now = time.monotonic()
        worker.end()
        cause, *traceback = loss.args
        message = ""
        can_replace = worker.replaced_at or worker.has_stepped
        if can_replace:
            message = (
                f"worker {worker.number} was lost and is replaced, new episodes begin in its "
                f"environments: {cause}"
            )
        self.on_event(
            "worker_lost",
            message=message,
            worker=worker.number,
            environments=worker.env_ids,
            cause=cause,
            traceback="".join(traceback),
        )
        if not can_replace:
            raise loss
        self.discarded += loss.episodes
        self.losses = [at for at in self.losses if now - at < SECONDS_OF_LOSSES] + [now]
        if len(self.losses) > self.max_losses:
            raise WorkerError(
                f"workers were lost {len(self.losses)} times within ten minutes, most recently "
                f"because {cause} (more in events.jsonl): give a greater --max_losses, or end "
                "the episode where the environment raises, by a wrapper (docs/environments.md)"
            )
        worker.heartbeat[:] = 0
        try:
            worker.start()
        except OSError as error:
            reason = f"cannot be replaced ({error.strerror or error})"
            raise WorkerError(f"worker {worker.number} {reason}: {cause}", *traceback) from error
        worker.replaced_at = now


def make_halves(num_envs: int, shares: Sequence[range]) -> list[Half]:
    """Divide environments into two halves. shares: those of each worker, w, w + W, w + 2 W ..."""
    halves = []
    for start, stop in pairwise(sorted({0, (num_envs + 1) // 2, num_envs})):
        members = [range(bisect_left(own, start), bisect_left(own, stop)) for own in shares]
        halves.append(Half(slice(start, stop), members))
    return halves


def merge(infos: Iterable[RolloutInfo]) -> RolloutInfo:
    """Merge the workers' reports on a rollout, in order of time."""
    reports = [*infos]
    return RolloutInfo(
        episodes=sorted(x for info in reports for x in info.episodes),
        last_observations=sorted(x for info in reports for x in info.last_observations),
        reset_envs=sorted(x for info in reports for x in info.reset_envs),
        faults=dict(ChainMap(*(info.faults for info in reports))),
        told={
            name: dict(ChainMap(*(info.told[name] for info in reports))) for name in reports[0].told
        },
        note=next((info.note for info in reports if info.note), ""),
    )
