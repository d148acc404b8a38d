"""Show each column of a batch as an environment, with all the wrappers of a single one."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import Env, Wrapper
from gymnasium.spaces import Discrete
from gymnasium.vector.utils import concatenate, create_empty_array
from numpy import ndarray

from ppo.envs.episodes import Info, StepResult
from ppo.envs.heartbeat import CLOSE, RENDER, RESET, STEP
from ppo.envs.infos import info_of
from ppo.extras.vector.batches import Batch


class Columns:
    """A batch, and an environment for each of its columns, which reads what the batch returned.

    Methods are those of the batch; then envs[i].step(None) returns what column i has got, and
    envs[i].reset() the first observation of its new episode. wrap: puts the wrappers around a
    column; beat: called before each call of the batch with an index in ppo.envs.heartbeat.CALLS.
    present: (n,) bool, the columns whose next action counts."""

    def __init__(
        self, batch: Batch, wrap: Callable[[Env], Env], beat: Callable[[int], None]
    ) -> None:
        self.batch = batch
        self.beat = beat
        self.metadata = batch.metadata
        self.present = np.ones(batch.num_envs, np.bool_)
        self.envs = [wrap(Column(self, i)) for i in range(batch.num_envs)]

    def reset(self, seeds: Sequence[int]) -> None:
        """Begin an episode in each column."""
        self.beat(RESET)
        self.observations, self.infos = self.batch.reset(seeds)
        self._note_present()

    def step(self, actions: Sequence[Any]) -> None:
        """Step all columns. actions: n, each as a single environment takes it."""
        batch = self.batch
        self.beat(STEP)
        results = batch.step(join_actions(batch.action_space, actions))
        self.observations, self.rewards, self.terminations, self.truncations, self.infos = results

    def restart(self, ended: ndarray, seeds: Sequence[int]) -> ndarray:
        """Begin new episodes where they ended (n,), with a seed for each. Call it after each step.
        Returns in which columns an episode begins: there, or where an agent has appeared."""
        before = self.present
        if ended.any():
            self.beat(RESET)
            self.observations, self.infos = self.batch.restart(ended, seeds)
        self._note_present()
        return self.present & (ended | ~before)

    def info(self, i: int) -> dict[str, Any]:
        """Return the info of column i."""
        if isinstance(self.infos, list):
            return self.infos[i]
        return info_of(self.infos, i, self.batch.num_envs)

    def render(self) -> Any:
        self.beat(RENDER)
        return self.batch.render()

    def close(self) -> None:
        self.beat(CLOSE)
        self.batch.close()

    def _note_present(self) -> None:
        if self.batch.present is not None:
            self.present = self.batch.present.copy()


class Column(Env):
    """One column of a batch as an environment, which reads what the batch returned."""

    def __init__(self, columns: Columns, index: int) -> None:
        batch = columns.batch
        self.columns = columns
        self.index = index
        self.observation_space = batch.observation_space
        self.action_space = batch.action_space
        self.metadata = batch.metadata
        self.spec = batch.spec
        self.render_mode = batch.render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Info]:
        columns = self.columns
        return row_of(columns.observations, self.index), columns.info(self.index)

    def step(self, action: Any) -> StepResult:
        columns = self.columns
        i = self.index
        return (
            row_of(columns.observations, i),
            columns.rewards[i].item(),
            bool(columns.terminations[i]),
            bool(columns.truncations[i]),
            columns.info(i),
        )

    def set_training(self, **env_attributes: Any) -> None:
        self.columns.batch.set_training(env_attributes)

    def render(self) -> Any:
        return self.columns.render()

    def close(self) -> None:
        self.columns.close()


class OneColumn(Wrapper):
    """A batch of one, stepped as the environment that its column is."""

    def __init__(self, columns: Columns) -> None:
        (column,) = columns.envs
        super().__init__(column)
        self.columns = columns

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Info]:
        if seed is None:
            seed = int(self.np_random.integers(2**32))
        else:
            self.np_random = np.random.default_rng(seed)
        self.columns.reset([seed])
        return self.env.reset(seed=seed)

    def step(self, action: Any) -> StepResult:
        self.columns.step([action])
        return self.env.step(action)


def row_of(observations: Any, i: int) -> Any:
    """Return row i of observations (n, ...): of an array, or of nested dicts and tuples of them."""
    if isinstance(observations, dict):
        return {name: row_of(part, i) for name, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(row_of(part, i) for part in observations)
    return observations[i]


def join_actions(space: Any, actions: Any) -> Any:
    """Return n actions of a space in the form in which a batch takes them: an array (n, ...), or
    nested dicts and tuples of them."""
    if isinstance(actions, ndarray):
        return actions
    if isinstance(space, Discrete):
        return np.array(actions, space.dtype)
    joined: Any = create_empty_array(space, len(actions))
    return concatenate(space, actions, joined)
