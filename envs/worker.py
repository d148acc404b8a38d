"""Acting in and stepping a slice of the environments, in a process of its own or in the trainer's."""

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from envs.episodes import WHOLE_EPISODE
from envs.seeding import Stream, integer_seed, seed_sequence
from envs.spaces import ACTION_MASK, action_converter, mask_converter

Make = Callable[..., Any]


class Episode(NamedTuple):
    """An episode that ended with this step of the rollout."""

    step: int
    environment: int
    episode_return: float
    episode_length: int


class LastObservation(NamedTuple):
    """The true last observation of an episode that was truncated with this step, and the state it was met with."""

    step: int
    environment: int
    observation: np.ndarray
    state: np.ndarray


class Report(NamedTuple):
    """What a rollout brings beside its tensors."""

    episodes: list[Episode]
    last_observations: list[LastObservation]


class WorkerError(Exception):
    """A worker cannot go on. args: what happened, and the traceback of what was raised, if anything was."""


def environment_error(name: str, error: Exception) -> WorkerError:
    """What an environment raised; called where it is being handled, for its traceback."""
    return WorkerError(f"environment {name} raised {type(error).__name__}: {error}", traceback.format_exc())


class Worker:
    """Fills the columns of the shared rollout that belong to its environments.

    config: its env_name, seed and squash_actions. make_env: from envs.make, as it must report its episodes. make_actor:
    from weights (P,) to what acts by them, as they are when a rollout begins (models.actor). normalize: from
    observations to what that reads. rollout: SharedArrays by name, time-major, a column for each environment of the
    run; indices: which are stepped here."""

    def __init__(
        self, config: Any, make_env: Make, make_actor: Make, normalize: Make, rollout: Any, weights: Any, indices: range
    ) -> None:
        columns = slice(indices.start, indices.stop)
        self.rollout = SimpleNamespace(**{name: shared.array[:, columns] for name, shared in rollout.items()})
        self.environments, self.env_name, self.seed = indices, config.env_name, config.seed
        self.act, self.normalize = make_actor(weights.array), normalize
        self.num_episodes = [0] * len(indices)
        self.envs: list[Any] = [make_env() for _ in indices]
        space = self.envs[0].action_space
        self.for_environment, self.for_policy = action_converter(space, config.squash_actions), mask_converter(space)

    def collect(self, iteration: int) -> Report:
        """Act and step T times from where the last rollout ended; iteration 1 starts with a reset. Raises WorkerError
        if an environment raises."""
        self.report = Report([], [])
        self.act.refresh()
        rollout = self.rollout
        rollout.terminations[:] = rollout.truncations[:] = False
        # Each environment's randomness is its own, whichever worker draws it: (T, n, *noise).
        seeds = (seed_sequence(self.seed, Stream.ACTION, index, iteration) for index in self.environments)
        draws = [self.act.draw_noise(np.random.default_rng(seed), len(rollout.actions)) for seed in seeds]
        try:
            for table in (rollout.observations, rollout.action_masks, rollout.states):
                table[0] = table[-1]
            if iteration == 1:
                for i in range(len(self.envs)):
                    self._arrive(0, i, *self._reset(0, i))
            for t, noise in enumerate(np.stack(draws, axis=1)):
                rollout.states[t + 1] = rollout.states[t]
                memory = (rollout.action_masks[t], rollout.states[t + 1], rollout.features[t])
                actions = self.act(self.normalize(rollout.observations[t]), noise, *memory)
                rollout.actions[t] = actions
                self._step(t, actions)
        except Exception as error:
            raise environment_error(f"{self.environments[self.stepping]} of {self.env_name}", error) from error
        return self.report

    def _step(self, t: int, actions: np.ndarray) -> None:
        """Write what actions lead to: reward and ending to row t, observation to row t + 1."""
        rewards = self.rollout.rewards[t]
        for i, action in enumerate(self.for_environment(actions)):
            self.stepping = i
            observation, rewards[i], terminated, truncated, info = self.envs[i].step(action)
            if terminated or truncated:
                observation, info = self._end_episode(t, i, observation, terminated, info)
            self._arrive(t + 1, i, observation, info)

    def _arrive(self, row: int, i: int, observation: Any, info: dict[str, Any]) -> None:
        """Write what environment i shows to a row: an observation, and which actions it allows."""
        self.rollout.observations[row, i] = observation
        if self.rollout.action_masks.size:
            self.rollout.action_masks[row, i] = self.for_policy(info.get(ACTION_MASK))
        elif info.get(ACTION_MASK) is not None:
            raise ValueError("it reports an action_mask that it had not in its first reset, or for numbers in a Box")

    def _end_episode(self, t: int, i: int, last_observation: Any, terminated: bool, info: dict[str, Any]) -> Any:
        """Record environment i's episode and start its next one; returns what its reset does."""
        index, rollout = self.environments[i], self.rollout
        (rollout.terminations if terminated else rollout.truncations)[t, i] = True
        if not terminated:
            last = LastObservation(t, index, np.array(last_observation), rollout.states[t + 1, i].copy())
            self.report.last_observations.append(last)
        if WHOLE_EPISODE in info:  # else it has ended for the learner only
            self.report.episodes.append(Episode(t, index, *info[WHOLE_EPISODE]))
        return self._reset(t + 1, i)

    def _reset(self, row: int, i: int) -> tuple[Any, dict[str, Any]]:
        """Start environment i's next episode, whose randomness depends on its number alone, without a memory."""
        seed = integer_seed(self.seed, Stream.EPISODE, self.environments[i], self.num_episodes[i])
        self.num_episodes[i] += 1
        self.stepping = i
        self.rollout.states[row, i] = 0
        return self.envs[i].reset(seed=seed)


def run_worker(make: Callable[[range], Worker], environments: range, connection: Connection, parent: int) -> None:
    """The life of a worker process: a report, or an error, for every iteration asked for, until that is None."""
    if sys.platform == "linux":  # die with the trainer, even while an environment hangs
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            return
    try:
        worker = make(environments)
        for iteration in iter(connection.recv, None):
            connection.send(worker.collect(iteration))
        for env in worker.envs:
            env.close()
    except WorkerError as error:
        connection.send(error)
    except EOFError:
        pass  # the trainer is gone
    except Exception as error:
        connection.send(WorkerError(f"a worker raised {type(error).__name__}: {error}", traceback.format_exc()))
