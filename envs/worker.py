"""Acting in and stepping a slice of the environments, in a process of its own or in the trainer's."""

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from envs.episodes import WHOLE_EPISODE
from envs.seeding import Stream, integer_seed, seed_sequence
from envs.shared import SharedArray


class Episode(NamedTuple):
    """An episode that ended with this step of the rollout."""

    step: int
    environment: int
    episode_return: float
    episode_length: int


class Report(NamedTuple):
    """What a rollout brings beside its tensors. last_observations: (step, environment, true last observation) of each
    episode that was truncated."""

    episodes: list[Episode]
    last_observations: list[tuple[int, int, np.ndarray]]


class WorkerError(Exception):
    """A worker cannot go on. args: what happened, and the traceback of what was raised, if anything was."""


def environment_error(name: str, error: Exception) -> WorkerError:
    """What an environment raised; called where it is being handled, for its traceback."""
    return WorkerError(f"environment {name} raised {type(error).__name__}: {error}", traceback.format_exc())


class Worker:
    """Fills the columns of the shared rollout that belong to its environments.

    make_env: each must report its episodes (envs.episodes), as those of envs.make do.
    make_actor: from the policy's weights (P,) to what acts by them, as they are when a rollout begins (models.actor).
    normalize: from observations to what that reads. rollout: name to time-major tensor, a column per environment."""

    def __init__(
        self,
        environments: range,
        env_name: str,
        seed: int,
        make_env: Callable[[], gymnasium.Env],
        make_actor: Callable[[np.ndarray], Any],
        normalize: Callable[[np.ndarray], np.ndarray],
        rollout: dict[str, SharedArray],
        weights: SharedArray,
    ) -> None:
        columns = slice(environments.start, environments.stop)
        tables = {name: shared.array[:, columns] for name, shared in rollout.items()}
        self.observations, self.actions, self.rewards = (tables[n] for n in ("observations", "actions", "rewards"))
        self.terminations, self.truncations = tables["terminations"], tables["truncations"]
        self.features: Any = tables.get("features", [None] * len(self.actions))
        self.environments, self.env_name, self.seed = environments, env_name, seed
        self.act, self.normalize = make_actor(weights.array), normalize
        self.num_episodes = [0] * len(environments)
        self.envs: list[Any] = [make_env() for _ in environments]
        self.for_environment = action_converter(self.envs[0].action_space)

    def collect(self, iteration: int) -> Report:
        """Act and step T times from where the last rollout ended; iteration 1 starts with a reset. Raises WorkerError
        if an environment raises."""
        self.report = Report([], [])
        self.act.refresh()
        self.terminations[:] = self.truncations[:] = False
        # Each environment's randomness is its own, whichever worker draws it: (T, n, *noise).
        seeds = (seed_sequence(self.seed, Stream.ACTION, index, iteration) for index in self.environments)
        draws = [self.act.draw_noise(np.random.default_rng(seed), len(self.actions)) for seed in seeds]
        try:
            self.observations[0] = self.observations[-1]
            if iteration == 1:
                for i in range(len(self.envs)):
                    self.observations[0, i] = self._reset(i)
            for t, noise in enumerate(np.stack(draws, axis=1)):
                actions = self.act(self.normalize(self.observations[t]), noise, self.features[t])
                self.actions[t] = actions
                self._step(t, actions)
        except Exception as error:
            raise environment_error(f"{self.environments[self.stepping]} of {self.env_name}", error) from error
        return self.report

    def _step(self, t: int, actions: np.ndarray) -> None:
        """Write what actions lead to: reward and ending to row t, observation to row t + 1."""
        rewards, next_observations = self.rewards[t], self.observations[t + 1]
        for i, action in enumerate(self.for_environment(actions)):
            self.stepping = i
            observation, rewards[i], terminated, truncated, info = self.envs[i].step(action)
            if terminated or truncated:
                observation = self._end_episode(t, i, observation, terminated, info)
            next_observations[i] = observation

    def _end_episode(self, t: int, i: int, last_observation: Any, terminated: bool, info: dict[str, Any]) -> Any:
        """Record environment i's episode and start its next one, whose first observation is returned."""
        index = self.environments[i]
        (self.terminations if terminated else self.truncations)[t, i] = True
        if not terminated:
            self.report.last_observations.append((t, index, np.array(last_observation)))
        if WHOLE_EPISODE in info:  # else it has ended for the learner only
            self.report.episodes.append(Episode(t, index, *info[WHOLE_EPISODE]))
        return self._reset(i)

    def _reset(self, i: int) -> Any:
        """Start environment i's next episode, whose randomness depends on its number alone."""
        seed = integer_seed(self.seed, Stream.EPISODE, self.environments[i], self.num_episodes[i])
        self.num_episodes[i] += 1
        self.stepping = i
        return self.envs[i].reset(seed=seed)[0]


def action_converter(space: spaces.Box | spaces.Discrete) -> Callable[[np.ndarray], Sequence[Any]]:
    """From the policy's actions (n, *action) to the actions of n environments. Only here are they clipped to their
    box: it is the unclipped ones that are learned from."""
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return lambda actions: (actions + start).tolist()
    shape, low, high, dtype = (-1, *space.shape), space.low, space.high, space.dtype
    return lambda actions: np.minimum(np.maximum(actions.reshape(shape), low), high).astype(dtype, copy=False)


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
