"""Step some columns of a run as one batch, and write what it returns to the shared rollout."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy import ndarray

from ppo.envs.episodes import WHOLE_EPISODE, close_env
from ppo.envs.errors import InvalidEnvOutput
from ppo.envs.heartbeat import ALL
from ppo.envs.infos import info_of
from ppo.envs.seeding import Stream, integer_seed
from ppo.envs.values import describe_value
from ppo.envs.worker import DONE, Attributes, RolloutInfo, Worker
from ppo.extensions import NOTHING
from ppo.extras.checks.batches import CheckBatch, check_rewards
from ppo.extras.checks.flags import CheckFlags
from ppo.extras.vector.make import make_columns
from ppo.extras.vector.teams import Team


@dataclass(kw_only=True)
class BatchWorker(Worker):
    """Step a batch, or whole teams, whose columns are this worker's.

    Observations that are numbers in one array, without masks of actions, are written and checked
    for all columns at once; others go through each column's own wrappers."""

    steps_whole = True
    can_replay = False

    def _make_envs(self) -> list[Any]:
        size = len(self.own_ids)
        seeds = self._seeds(range(size))
        self.columns = make_columns(self.config, self.own_ids, seeds, self._beat)
        batch = self.columns.batch
        space = batch.observation_space
        is_same = self.columns.envs[0].observation_space == space
        self.checker = None
        if is_same and space.shape and not self.has_masks and not isinstance(batch, Team):
            self.checker = CheckBatch(space)
            self.num_outside = np.zeros(size, np.int64)
        self.returns = np.zeros(size)
        self.lengths = np.zeros(size, np.int64)
        self.applied: Any = ()
        return self.columns.envs

    def begin(self, env_attributes: Attributes = NOTHING) -> bool:
        super().begin(env_attributes)
        if self.rollout.present.size:
            self.rollout.present[0] = self.columns.present
        return DONE

    def step(self, t: int, members: range) -> bool:
        """Step all columns by the actions of row t; write rewards, ends and row t + 1."""
        self.actions = self.rollout.actions[t]
        columns = self.columns
        columns.step(self.to_actions(self.actions))
        ended = (columns.terminations | columns.truncations) & columns.present
        if self.checker:
            self._write_arrays(t, ended)
        else:
            self._write_columns(t)
        seeds: list[int] = []
        if ended.any():
            self._set_attributes()
            seeds = self._seeds(np.flatnonzero(ended))
        self._begin(t + 1, columns.restart(ended, seeds))
        return DONE

    def end(self) -> RolloutInfo:
        info = super().end()
        if self.checker:
            for index, count in zip(self.env_indices, self.num_outside.tolist(), strict=True):
                info.faults[index] = {"observation_outside": count}
            self.num_outside[:] = 0
        return info._replace(note=self.columns.batch.note)

    def close(self) -> None:
        close_env(self.columns)

    def _start_all(self, row: int) -> None:
        """Begin an episode in each column."""
        self._set_attributes()
        columns = self.columns
        columns.reset(self._seeds(range(len(self.own_ids))))
        self._begin(row, columns.present)

    def _begin(self, row: int, begun: ndarray) -> None:
        """Write the first observations of the episodes that begin in this row in some columns."""
        rollout = self.rollout
        if rollout.present.size:
            rollout.present[row] = self.columns.present
            rollout.observations[row, ~self.columns.present] = 0
        if self.checker:
            if begun.any():
                first = self._check(self.columns.observations, begun)
                rollout.observations[row, begun] = first[begun]
                rollout.states[row, begun] = 0
                self.returns[begun] = 0
                self.lengths[begun] = 0
                self.own_counts[begun] += 1
            return
        for i in np.flatnonzero(begun):
            self.start_episode(row, int(i))

    def reset(self, i: int, episode: int, env_attributes: Attributes) -> tuple[Any, Any]:
        """Return the first observation of the episode that the batch has begun in a column."""
        return self.envs[i].reset()

    def _write_arrays(self, t: int, ended: ndarray) -> None:
        """Write what all columns have got in a step."""
        columns = self.columns
        rollout = self.rollout
        check_rewards(columns.rewards)
        observations = self._check(columns.observations, columns.present)
        rollout.observations[t + 1] = observations
        rollout.rewards[t] = columns.rewards
        self.returns += columns.rewards
        self.lengths += 1
        for i in np.flatnonzero(ended).tolist():
            whole = (float(self.returns[i]), int(self.lengths[i]))
            info = {**info_of(columns.infos, i, len(ended)), WHOLE_EPISODE: whole}
            self._end_episode(t, i, observations[i], bool(columns.terminations[i]), info)

    def _check(self, observations: ndarray, counted: ndarray) -> ndarray:
        """Return observations (n, *observation) that have been checked; count those outside of
        their space in some columns (n,) bool."""
        assert self.checker
        observations, outside = self.checker(observations)
        if outside.any():
            outside[~counted] = 0
            self.num_outside += outside > 0
            if outside.any() and CheckFlags.of(self.config).strict_spaces:
                raise InvalidEnvOutput(
                    f"its observation {describe_value(observations[outside.argmax()])} is outside "
                    f"of {self.checker.space}"
                )
        return observations

    def _write_columns(self, t: int) -> None:
        """Write what each column has got, by way of its wrappers."""
        rollout = self.rollout
        rollout.rewards[t] = 0
        for i in np.flatnonzero(self.columns.present).tolist():
            observation, reward, terminated, truncated, info = self.envs[i].step(None)
            rollout.rewards[t, i] = reward
            if terminated or truncated:
                self._end_episode(t, i, observation, terminated, info)
                continue
            rollout.observations[t + 1, i] = observation
            if info or self.has_masks:
                self._write_mask(t + 1, i, info)

    def _beat(self, call: int) -> None:
        """Report a call of the batch, which is one of each of its environments."""
        self.calls.num_calls += len(self.own_ids) - 1
        self.calls.beat(call, ALL)

    def _set_attributes(self) -> None:
        if self.env_attributes != self.applied:
            self.columns.batch.set_training(self.env_attributes)
            self.applied = self.env_attributes

    def _seeds(self, columns: Iterable[int]) -> list[int]:
        """Return a seed for the next episode of some columns: that of a single environment."""
        seed = partial(integer_seed, self.config.seed, Stream.EPISODE)
        return [seed(self.own_ids[i], int(self.own_counts[i])) for i in columns]
