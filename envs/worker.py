"""Collect a slice of the shared rollout, in a worker process or in the trainer's own process."""

import ctypes
import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import numpy as np

from ppo.envs.environment_slice import EnvironmentSlice, called_env
from ppo.envs.environment_slice import RolloutInfo as RolloutInfo
from ppo.envs.episodes import OpenEpisode
from ppo.envs.errors import WorkerError, environment_error
from ppo.envs.sampler import RolloutSampler
from ppo.envs.shared import SharedArray

PARENT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # for the trainer to handle


class Worker:
    """Answer the trainer's commands for a slice of the environments.

    config: env_name, seed and squash_actions are used; make_env: ppo.envs.make.make_env with its
    arguments; make_actor: from weights (P,) to a ppo.models.actor.Actor, None if the trainer
    samples actions; normalize: maps observations to the actor's input; rollouts: shared arrays by
    name, time-major, one column per environment of this rank; several rollouts are filled in turn;
    episode_counts: (N,), how many episodes each environment has begun; env_ids: their numbers in
    the whole run; env_indices: those stepped here; heartbeat: as EnvironmentSlice describes."""

    def __init__(
        self,
        *,
        config: Any,
        make_env: Callable[[], Any],
        make_actor: Callable[[np.ndarray], Any] | None,
        normalize: Callable[[np.ndarray], np.ndarray],
        rollouts: Sequence[Mapping[str, SharedArray]],
        weights: SharedArray,
        episode_counts: SharedArray,
        env_ids: range,
        env_indices: range,
        heartbeat: Any = None,
    ) -> None:
        columns = slice(env_indices.start, env_indices.stop, env_indices.step)
        own_rollouts = [
            SimpleNamespace(**{name: shared.array[:, columns] for name, shared in rollout.items()})
            for rollout in rollouts
        ]
        own_ids = env_ids[columns]
        self.env_name = config.env_name
        self.is_sampling = False
        self.sampler: Any = None
        if make_actor:
            self.sampler = RolloutSampler(
                make_actor(weights.array),
                normalize,
                seed=config.seed,
                env_ids=own_ids,
                rollouts=own_rollouts,
            )
        self.environments = EnvironmentSlice(
            config,
            make_env,
            own_rollouts,
            episode_counts=episode_counts.array[columns],
            env_ids=own_ids,
            env_indices=env_indices,
            heartbeat=[0, 0] if heartbeat is None else heartbeat,
        )

    def restore(self, episodes: Sequence[OpenEpisode]) -> list[int]:
        """Restore an open episode in each environment; return those that were reset instead."""
        return self.environments.restore(episodes)

    def collect(self, iteration: int) -> RolloutInfo:
        """Sample actions and step T times. Raises WorkerError if an environment raises."""
        self.begin(iteration)
        members = range(len(self.environments.envs))
        with self._explained_errors():
            self.sampler.begin(iteration)
            for t in range(self.sampler.num_steps):
                self.is_sampling = True
                self.sampler(t)
                self.is_sampling = False
                self.environments.step(t, members)
        return self.end()

    def begin(self, iteration: int) -> bool:
        """Begin a rollout. Raises as collect does."""
        with self._explained_errors():
            self.environments.begin(iteration)
        return True

    def step(self, t: int, members: range) -> bool:
        """Carry out the actions of row t in some of the environments. Raises as collect does."""
        with self._explained_errors():
            self.environments.step(t, members)
        return True

    def end(self) -> RolloutInfo:
        """End the rollout."""
        return self.environments.end()

    def close(self) -> None:
        self.environments.close()

    @contextmanager
    def _explained_errors(self) -> Iterator[None]:
        """Turn exceptions into WorkerErrors that say whether environment or policy is the cause."""
        try:
            yield
        except Exception as error:
            raise self._explain(error) from error

    def _explain(self, error: Exception) -> WorkerError:
        environments = self.environments
        problem = ""
        if not environments.actions_are_finite():
            problem = "the policy's actions are not finite: lower --learning_rate"
        elif self.is_sampling:
            problem = f"the policy raised {type(error).__name__}: {error}"
        if problem:
            return WorkerError(problem, traceback.format_exc())
        env_id = environments.env_ids[called_env(environments.heartbeat[1])]
        return environment_error(f"{env_id} of {self.env_name}", error)


def run_worker(
    make_worker: Callable[..., Worker],
    env_indices: range,
    connection: Connection,
    *,
    heartbeats: SharedArray,
    number: int,
    parent: int,
) -> None:
    """Run a worker process: reply to each command (method, *arguments), until one is None.

    A method's result is the reply. An exception is one, too, and ends the process. heartbeats: the
    worker's own is row number; parent: the trainer's process id."""
    if not _die_with_parent(parent):
        return
    _ignore_parent_signals()
    try:
        worker = make_worker(env_indices=env_indices, heartbeat=heartbeats.array[number])
        gc.freeze()
        gc.enable()
        for method, *arguments in iter(connection.recv, None):
            connection.send(getattr(worker, method)(*arguments))
        worker.close()
    except (EOFError, ConnectionError):
        pass  # the trainer has ended
    except Exception as error:
        if not isinstance(error, WorkerError):
            problem = f"a worker raised {type(error).__name__}: {error}"
            error = WorkerError(problem, traceback.format_exc())
        with suppress(OSError):  # the trainer has ended
            connection.send(error)


def _die_with_parent(parent: int) -> bool:
    """Have the kernel kill this process with the trainer, even while an environment hangs.

    Returns whether the trainer is still alive."""
    if sys.platform != "linux":
        return True
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    return os.getppid() == parent


def _ignore_parent_signals() -> None:
    """Leave signals that are sent to all processes of a terminal or a job to the trainer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGUSR1):
        # Not SIG_IGN, which processes started by environments would inherit.
        signal.signal(number, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PARENT_SIGNALS)
