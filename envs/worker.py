"""Step some of a run's environments and write what they return to rows of the shared rollout."""

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import parent_process
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy import ndarray

from ppo.envs.episodes import (
    WHOLE_EPISODE,
    Info,
    close_env,
    episode_metrics,
    set_attributes,
)
from ppo.envs.errors import EnvironmentUnavailable, WorkerError, worker_error
from ppo.envs.heartbeat import ENVIRONMENT, RESET, START, STEP, Heartbeat, describe_environments
from ppo.envs.inspection import take_faults
from ppo.envs.make import make_env
from ppo.envs.seeding import Stream, integer_seed
from ppo.envs.shared_memory import SharedArray
from ppo.envs.spaces import ACTION_MASK, action_converter, mask_converter
from ppo.extensions import NOTHING, added_columns, names_of
from ppo.system.signals import RAISED_BY_SIGNALS

if TYPE_CHECKING:
    from ppo.config.config import Config
    from ppo.envs.sampler import RolloutSampler

NOT_FINITE = "the policy's actions are not finite: lower --learning_rate"
DONE = True  # the reply to a command that has nothing to tell; None means that there is none yet
Attributes = Mapping[str, Any]
# Their last row begins the next rollout; that of "present" does by the worker that writes it.
CARRIED_TABLES = ("observations", "states", "action_masks")


class Episode(NamedTuple):
    """A whole episode that ended at this step of the rollout.

    metrics: the environment's own numbers, by name."""

    step: int
    environment: int
    episode_return: float
    episode_length: int
    metrics: dict[str, float]


class LastObservation(NamedTuple):
    """The last observation of an episode truncated at this step, with its recurrent state."""

    step: int
    environment: int
    observation: ndarray
    state: ndarray


class RolloutInfo(NamedTuple):
    """What workers report of a rollout, beside its tables. Environments are numbered as those
    of this learner.

    reset_envs: those that were reset before the rollout; faults: how many each has had, by their
    kinds (see ppo.envs.inspection.Inspector); told: what each WorkerPart tells of
    environments, by its name; note: a sentence for the user, or ""; discarded: episodes that ended
    in a part of the rollout that was lost and collected again, of which the tables hold nothing."""

    episodes: list[Episode]
    last_observations: list[LastObservation]
    reset_envs: list[int]
    faults: dict[int, dict[str, int]]
    told: dict[str, dict[int, Any]]
    note: str = ""
    discarded: Sequence[Episode] = ()


NO_INFO = RolloutInfo([], [], [], {}, {})  # outside of a rollout


class WorkerPart:
    """Base class of what extensions add to a worker, whose environments are made."""

    def __init__(self, worker: "Worker") -> None:
        self.worker = worker

    def tell(self) -> dict[int, Any]:
        """Return what to tell of each environment, by its index, at the end of a rollout."""
        return {}


@dataclass(kw_only=True)
class Worker:
    """Step a slice of the environments in one process; with make_sampler, sample their actions.

    config: the run's, resolved; make_sampler(env_ids=, rollout=): None if the trainer samples
    actions; shared_rollout: arrays by name, time-major, one column per environment of this learner;
    episode_counts: (N,), of each; env_ids: their numbers in the whole run, on which their
    randomness depends; env_indices: those stepped here; heartbeat: (3,), where calls of these
    environments are reported, see ppo.envs.heartbeat.Heartbeat.

    steps_whole: whether it steps all of its environments at once, never a half of them; can_replay:
    whether the actions of an open episode lead to where it was; make_env: as that of
    ppo.envs.make."""

    make_env: ClassVar = staticmethod(make_env)
    steps_whole: ClassVar = False
    can_replay: ClassVar = True

    config: "Config"
    make_sampler: "Callable[..., RolloutSampler] | None"
    shared_rollout: Mapping[str, SharedArray]
    episode_counts: SharedArray
    env_ids: range
    env_indices: range
    heartbeat: SharedArray

    def __post_init__(self) -> None:
        columns = slice(self.env_indices.start, self.env_indices.stop, self.env_indices.step)
        self.is_sampling = False
        self.own_ids = self.env_ids[columns]
        self.own_counts = self.episode_counts.array[columns]
        self.rollout = SimpleNamespace(
            **{name: table.array[:, columns] for name, table in self.shared_rollout.items()}
        )
        self.actions = self.rollout.actions[:0]  # those that are being carried out
        self.has_masks = self.rollout.action_masks.size > 0
        if self.make_sampler:
            self.sampler = self.make_sampler(env_ids=self.own_ids, rollout=self.rollout)
        self.calls = Heartbeat()
        self.calls.share(self.heartbeat.array)
        # Those that were reset before this rollout, as resuming may do; None: all are to be reset.
        self.reset_envs: list[int] | None = None
        self.info = NO_INFO
        self.envs = self._make_envs()
        space = self.envs[0].action_space
        self.to_actions = action_converter(
            space, self.config.squash_actions, self.config.scale_actions
        )
        self.to_mask = mask_converter(space)
        # Of each environment: tables that extensions have added, and what reads the numbers for
        # them off its last step.
        self.readers: list[list[tuple[ndarray, Callable[[], ndarray]]]] = [[] for _ in self.envs]
        for name, column in added_columns(self.config).items():
            make_reader = resolve_name(column.reader)
            for env, readers in zip(self.envs, self.readers, strict=True):
                readers.append((vars(self.rollout)[name], make_reader(env)))
        # Of each environment, as they were set.
        self.attributes: list[Attributes] = [NOTHING] * len(self.envs)
        self.extension_parts: dict[str, WorkerPart] = {
            name: resolve_name(path)(self) for name, path in names_of("worker_parts").items()
        }

    def _make_envs(self) -> list[Any]:
        """Make the environments of the slice. Raises EnvironmentUnavailable if one observes another
        shape than that of the first look: it may depend on the environment's number."""
        shape = self.rollout.observations.shape[2:]
        envs: list[Any] = []
        for i, env_id in enumerate(self.own_ids):
            self.calls.beat(START, i)
            env = self.make_env(self.config, env_id)
            if env.observation_space.shape != shape:
                raise EnvironmentUnavailable(
                    f"environment {env_id} of {self.config.env_name} observes "
                    f"{env.observation_space}, others {shape}: give all of them the same spaces"
                )
            envs.append(env)
        return envs

    def run(self, method: str, *arguments: Any) -> Any:
        """Run a command of the trainer: a method's name and its arguments.

        Raises WorkerError, which blames the environment or the policy, if the method raises."""
        try:
            return getattr(self, method)(*arguments)
        except EnvironmentUnavailable:
            raise
        except BaseException as error:
            if isinstance(error, RAISED_BY_SIGNALS) and parent_process() is None:
                raise
            culprit = "the policy"
            if not self.is_sampling:
                called = describe_environments(self.own_ids, self.calls.numbers[ENVIRONMENT])
                culprit = f"{called} of {self.config.env_name}"
            loss = worker_error(culprit, error)
            if not np.isfinite(self.actions).all():
                loss = WorkerError(NOT_FINITE, traceback.format_exc())
            loss.episodes = self.info.episodes
            raise loss from error

    def call(self, name: str, method: str, *arguments: Any) -> Any:
        """Call a method of what an extension has added by a name."""
        return getattr(self.extension_parts[name], method)(*arguments)

    def collect(self, iteration: int, env_attributes: Attributes = NOTHING) -> RolloutInfo:
        """Collect a rollout of T steps. env_attributes: of environments, for new episodes."""
        self.begin(env_attributes)
        members = range(len(self.envs))
        self.sampler.begin(iteration)
        for t in range(self.sampler.num_steps):
            self.is_sampling = True
            self.sampler(t)
            self.is_sampling = False
            self.step(t, members)
        return self.end()

    def begin(self, env_attributes: Attributes = NOTHING) -> bool:
        """Begin a rollout with the last row of the previous one; the first one, with resets."""
        self.env_attributes = dict(env_attributes)
        for name in CARRIED_TABLES:
            table = vars(self.rollout)[name]
            table[0] = table[-1]
        self.rollout.terminations[:] = False
        self.rollout.truncations[:] = False
        is_first = self.reset_envs is None
        reset_envs = [*self.env_indices] if self.reset_envs is None else self.reset_envs
        self.info = RolloutInfo([], [], reset_envs, {}, {})
        self.reset_envs = []
        if is_first:
            self._start_all(0)
        return DONE

    def step(self, t: int, members: range) -> bool:
        """Step some environments by the actions of row t; write rewards, ends and row t + 1."""
        rewards = self.rollout.rewards[t]
        observations = self.rollout.observations[t + 1]
        self.actions = self.rollout.actions[t, members.start : members.stop]
        envs = self.envs
        for i, action in zip(members, self.to_actions(self.actions), strict=True):
            self.calls.beat(STEP, i)
            observation, rewards[i], terminated, truncated, info = envs[i].step(action)
            for table, read in self.readers[i]:
                table[t, i] = read()
            if terminated or truncated:
                self._end_episode(t, i, observation, terminated, info)
                self.start_episode(t + 1, i)
                continue
            observations[i] = observation
            if info or self.has_masks:
                self._write_mask(t + 1, i, info)
        return DONE

    def end(self) -> RolloutInfo:
        """End the rollout, and return the report on it."""
        info, self.info = self.info, NO_INFO
        for index, env in zip(self.env_indices, self.envs, strict=True):
            info.faults[index] = take_faults(env)
        for name, part in self.extension_parts.items():
            info.told[name] = part.tell()
        return info

    def close(self) -> None:
        for env in self.envs:
            close_env(env)

    def _write_mask(self, row: int, i: int, info: Info) -> None:
        if self.has_masks:
            self.rollout.action_masks[row, i] = self.to_mask(info.get(ACTION_MASK))
        elif info.get(ACTION_MASK) is not None:
            raise ValueError("its first reset had no action_mask, or its actions are a Box")

    def _end_episode(self, t: int, i: int, observation: Any, terminated: bool, info: Info) -> None:
        """Record the end of environment i's episode."""
        rollout = self.rollout
        index = self.env_indices[i]
        if terminated:
            rollout.terminations[t, i] = True
        else:
            rollout.truncations[t, i] = True
            last = LastObservation(t, index, np.array(observation), rollout.states[t + 1, i].copy())
            self.info.last_observations.append(last)
        if WHOLE_EPISODE in info:  # otherwise the episode ended for the learner only
            total, length = info[WHOLE_EPISODE]
            self.info.episodes.append(Episode(t, index, total, length, episode_metrics(info)))

    def _start_all(self, row: int) -> None:
        """Start an episode in each environment."""
        for i in range(len(self.envs)):
            self.start_episode(row, i)

    def start_episode(self, row: int, i: int) -> None:
        """Start environment i's next episode, with a recurrent state of zeros."""
        self.own_counts[i] += 1
        self.rollout.states[row, i] = 0
        episode = int(self.own_counts[i]) - 1
        self.rollout.observations[row, i], info = self.reset(i, episode, self.env_attributes)
        self._write_mask(row, i, info)

    def reset(self, i: int, episode: int, env_attributes: Attributes) -> tuple[Any, Any]:
        """Reset environment i with a seed that depends on its id and the episode's number only."""
        self.calls.beat(RESET, i)
        if env_attributes != self.attributes[i]:
            set_attributes(self.envs[i], env_attributes)
            self.attributes[i] = env_attributes
        seed = integer_seed(self.config.seed, Stream.EPISODE, self.own_ids[i], episode)
        return self.envs[i].reset(seed=seed)
