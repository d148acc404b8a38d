"""RolloutSampler in and stepping a slice of the environments, in a process of its own or in the trainer's."""

import ctypes
import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from ppo.envs.episodes import WHOLE_EPISODE, OpenEpisode, layers, restore_emulator, save_emulator
from ppo.envs.errors import WorkerError, environment_error
from ppo.envs.sampler import RolloutSampler
from ppo.envs.seeding import Stream, integer_seed
from ppo.envs.spaces import ACTION_MASK, action_converter, mask_converter

Make = Callable[..., Any]
PARENT_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGUSR1,
)  # to heed, though they may be sent to all processes


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


class RolloutInfo(NamedTuple):
    """What a rollout brings beside its tensors. begun: environments that were reset where it begins; by environment:
    num_outside, how many observations were outside of the space, and emulators, their states at its end."""

    episodes: list[Episode]
    last_observations: list[LastObservation]
    begun: list[int]
    num_outside: dict[int, int]
    emulators: dict[int, bytes | None]


class Worker:
    """Fills the columns of the shared rollout that belong to its environments.

    config: its env_name, seed and squash_actions. make_env: from ppo.envs.make, as it must report its episodes. make_actor:
    from weights (P,) to what acts by them (ppo.models.actor), None if the trainer acts. normalize: from observations to
    what that reads. rollouts: SharedArrays by name, time-major, a column for each environment; if there are several
    they are filled in turn. num_episodes: how many each has begun, by all workers that it has had; numbers: of each in
    the whole run, on which its randomness depends; indices: which are stepped here; heartbeat: is told of every call into
    an environment, how many and of which (~i for a reset)."""

    def __init__(
        self,
        config: Any,
        make_env: Make,
        make_actor: Make | None,
        normalize: Make,
        rollouts: Sequence[Any],
        weights: Any,
        num_episodes: Any,
        numbers: range,
        indices: range,
        heartbeat: Any = None,
    ) -> None:
        columns = slice(indices.start, indices.stop, indices.step)
        self.rollouts = [
            SimpleNamespace(**{name: shared.array[:, columns] for name, shared in rollout.items()})
            for rollout in rollouts
        ]
        self.rollout = self.rollouts[0]
        self.environments, self.env_name, self.seed = indices, config.env_name, config.seed
        self.numbers = numbers[columns]
        draws = (config.seed, self.numbers, self.rollouts)
        self.act: Any = make_actor and RolloutSampler(make_actor(weights.array), normalize, *draws)
        self.is_acting = False
        self.row, self.has_masks = 0, self.rollout.action_masks.size > 0
        self.num_episodes, self.num_calls = num_episodes.array[columns], 0
        self.heartbeat = [0, 0] if heartbeat is None else heartbeat
        self.begun: list[int] | None = None
        self.envs: list[Any] = []
        for i in range(len(indices)):
            self._heartbeat(~i)
            self.envs.append(make_env())
        space = self.envs[0].action_space
        self.for_environment, self.for_policy = (
            action_converter(space, config.squash_actions),
            mask_converter(space),
        )

    def restore(self, episodes: Sequence[OpenEpisode]) -> list[int]:
        """Go on with open episodes, one for each environment, from what the last row of the rollout shows. Returns the
        environments in which that was not what came of it; there a new episode has begun."""
        self.begun = []
        for i, episode in enumerate(episodes):
            if not self._resume(i, episode):
                self.begun.append(self.environments[i])
                self._write_observation(-1, i, *self._reset(-1, i))
        return self.begun

    def collect(self, iteration: int) -> RolloutInfo:
        """Act and step T times from where the last rollout ended, at first from a reset. Raises WorkerError if an
        environment raises."""
        self.begin(iteration)
        with self._raising():
            self.act.begin(iteration)
            for t in range(self.act.num_steps):
                self.is_acting = True
                self.act(t)
                self.is_acting = False
                self._step(t, range(len(self.envs)))
        return self.end()

    def begin(self, iteration: int) -> bool:
        """Begin a rollout with what the last one ended with, at first with resets. Raises as collect does."""
        self.row = len(self.rollout.actions)  # none yet
        before, self.rollout = self.rollout, self.rollouts[iteration % len(self.rollouts)]
        for name in ("observations", "action_masks", "states"):
            vars(self.rollout)[name][0] = vars(before)[name][-1]
        self.rollout.terminations[:] = self.rollout.truncations[:] = False
        if self.begun is None:
            self.begun = list(self.environments)
            with self._raising():
                for i in range(len(self.envs)):
                    self._write_observation(0, i, *self._reset(0, i))
        self.report = RolloutInfo([], [], self.begun, {}, {})
        self.begun = []
        return True

    def step(self, t: int, first: int, last: int) -> bool:
        """Do what the actions of row t say in some of the environments here. Raises as collect does."""
        with self._raising():
            self._step(t, range(first, last))
        return True

    def end(self) -> RolloutInfo:
        """What the rollout has brought."""
        for index, env in zip(self.environments, self.envs, strict=True):
            self.report.num_outside[index] = sum(
                vars(layer).pop("num_outside", 0) for layer in layers(env)
            )
            self.report.emulators[index] = save_emulator(env)
        return self.report

    @contextmanager
    def _raising(self) -> Iterator[None]:
        """Turn what is raised into a WorkerError, which says whether the environment or the policy is to blame."""
        try:
            yield
        except Exception as error:
            if not np.isfinite(self.rollout.actions[self.row : self.row + 1]).all():
                problem = "the policy's actions are not finite: lower --learning_rate"
                raise WorkerError(problem, traceback.format_exc()) from error
            if self.is_acting:
                raise WorkerError(
                    f"the policy raised {type(error).__name__}: {error}", traceback.format_exc()
                ) from error
            index = self.numbers[max(self.heartbeat[1], ~self.heartbeat[1])]
            raise environment_error(f"{index} of {self.env_name}", error) from error

    def _step(self, t: int, group: range) -> None:
        """Write what actions lead to: reward and ending to row t, observation to row t + 1."""
        rollout, envs = self.rollout, self.envs
        self.row, rewards, observations = t, rollout.rewards[t], rollout.observations[t + 1]
        actions = self.for_environment(rollout.actions[t, group.start : group.stop])
        for i, action in zip(group, actions, strict=True):
            self._heartbeat(i)
            observation, rewards[i], terminated, truncated, info = envs[i].step(action)
            if terminated or truncated:
                observation, info = self._end_episode(t, i, observation, terminated, info)
            observations[i] = observation
            if info or self.has_masks:
                self._note_mask(t + 1, i, info)

    def _write_observation(self, row: int, i: int, observation: Any, info: dict[str, Any]) -> None:
        """Write what environment i shows to a row: an observation, and which actions it allows."""
        self.rollout.observations[row, i] = observation
        self._note_mask(row, i, info)

    def _note_mask(self, row: int, i: int, info: dict[str, Any]) -> None:
        if self.has_masks:
            self.rollout.action_masks[row, i] = self.for_policy(info.get(ACTION_MASK))
        elif info.get(ACTION_MASK) is not None:
            raise ValueError(
                "it reports an action_mask that it had not in its first reset, or for numbers in a Box"
            )

    def _end_episode(
        self, t: int, i: int, last_observation: Any, terminated: bool, info: dict[str, Any]
    ) -> Any:
        """Record environment i's episode and start its next one; returns what its reset does."""
        index, rollout = self.environments[i], self.rollout
        (rollout.terminations if terminated else rollout.truncations)[t, i] = True
        if not terminated:
            last = LastObservation(
                t, index, np.array(last_observation), rollout.states[t + 1, i].copy()
            )
            self.report.last_observations.append(last)
        if WHOLE_EPISODE in info:  # else it has ended for the learner only
            self.report.episodes.append(Episode(t, index, *info[WHOLE_EPISODE]))
        return self._reset(t + 1, i)

    def _reset(self, row: int, i: int) -> tuple[Any, dict[str, Any]]:
        """Start environment i's next episode, whose randomness depends on its number alone, without a memory."""
        self.num_episodes[i] += 1
        self.rollout.states[row, i] = 0
        return self._begin(i, int(self.num_episodes[i]) - 1)

    def _begin(self, i: int, episode: int) -> tuple[Any, dict[str, Any]]:
        """Reset environment i to the beginning of an episode."""
        self._heartbeat(~i)
        return self.envs[i].reset(
            seed=integer_seed(self.seed, Stream.EPISODE, self.numbers[i], episode)
        )

    def _resume(self, i: int, episode: OpenEpisode) -> bool:
        """Bring environment i to where an episode was left; whether it shows what it did then."""
        last_seen = self.rollout.observations[-1, i]
        try:
            if episode.emulator is not None:
                restore_emulator(self.envs[i], episode.emulator, last_seen)
                return True
            if episode.actions is None:
                return False
            observation, _ = self._begin(i, episode.number)
            for action in self.for_environment(episode.actions):
                self._heartbeat(i)
                observation, _, terminated, truncated, _ = self.envs[i].step(action)
                if terminated or truncated:
                    return False
        except Exception:  # whatever it is, a new episode does without it
            return False
        return np.array_equal(observation, last_seen)

    def _heartbeat(self, call: int) -> None:
        """Note a call into environment i, a step (i) or a reset (~i), for whoever watches and for errors."""
        self.num_calls += 1
        self.heartbeat[0], self.heartbeat[1] = self.num_calls, call


def run_worker(
    make: Callable[..., Worker],
    environments: range,
    connection: Connection,
    heartbeats: Any,
    worker: int,
    parent: int,
) -> None:
    """The life of a worker process: it answers each command, (method, *arguments), until that is None, by what its
    method returns, or by an error, after which it ends."""
    if sys.platform == "linux":  # die with the trainer, even while an environment hangs
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in PARENT_SIGNALS[
        1:
    ]:  # not ignored, lest processes that environments start ignore it too
        signal.signal(number, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PARENT_SIGNALS)
    try:
        made = make(environments, heartbeats.array[worker])
        gc.freeze()
        gc.enable()
        for method, *arguments in iter(connection.recv, None):
            connection.send(getattr(made, method)(*arguments))
        for env in made.envs:
            env.close()
    except (EOFError, ConnectionError):
        pass  # the trainer is gone
    except Exception as error:
        raised = f"a worker raised {type(error).__name__}: {error}"
        with suppress(OSError):
            connection.send(
                error
                if isinstance(error, WorkerError)
                else WorkerError(raised, traceback.format_exc())
            )
