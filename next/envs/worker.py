"""Collect rollouts: act and step some columns of the rollout, and report what has ended."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy import ndarray

from ppo.envs.columns import LastObservation, check_finite
from ppo.envs.episodes import Episode
from ppo.envs.make import Spaces
from ppo.envs.observations import NUMBERS, Layout
from ppo.envs.sampler import Arrays, MakeActor, Sampler
from ppo.envs.seeding import Stream, integer_seed
from ppo.envs.spaces import columns_dtype, mask_converter, num_columns
from ppo.errors import BadValue


@dataclass
class Report:
    """What a worker tells of a rollout in addition to its tables. new: environments that have begun
    an episode in its first row."""

    episodes: list[Episode] = field(default_factory=list)
    last: list[LastObservation] = field(default_factory=list)
    new: list[int] = field(default_factory=list)

    def add(self, other: "Report") -> None:
        """Add what another worker tells."""
        self.episodes = sorted([*self.episodes, *other.episodes], key=lambda x: x[:2])
        self.last = sorted([*self.last, *other.last], key=lambda x: x[:2])
        self.new = sorted([*self.new, *other.new])


def table_shapes(
    spaces: Spaces, num_steps: int, num_envs: int, *, state_size: int, num_features: int = 0
) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Return shape and dtype of each table of a rollout, by name (see ppo.rollout.Rollout)."""
    T, n = num_steps, num_envs
    space = spaces.actions
    mask_size = len(mask_converter(space)(None)) if spaces.has_masks else 0
    observed = {
        name: ((T + 1, n, *box.shape), box.dtype) for name, box in spaces.layout.tables.items()
    }
    return {
        **observed,
        "actions": ((T, n, num_columns(space)), columns_dtype(space)),
        "rewards": ((T, n), np.float32),
        "terminations": ((T, n), np.bool_),
        "truncations": ((T, n), np.bool_),
        "features": ((T, n, num_features), np.float32),
        "states": ((T + 1, n, state_size), np.float32),
        "action_masks": ((T + 1, n, mask_size), np.bool_),
    }


def carried_tables(layout: Layout) -> list[str]:
    """Return the names of the tables with a row T, which begins the next rollout."""
    return ["states", "action_masks", *layout.tables]


class Worker:
    """Step columns of the rollout; with an actor, draw their actions.

    arrays: the run's shared memory: the tables, and how often each environment has been reset;
    heartbeat: (1,), counts calls of environments; options: of the columns."""

    def __init__(
        self,
        spaces: Spaces,
        arrays: Arrays,
        env_ids: range,
        heartbeat: ndarray,
        make_actor: MakeActor | None = None,
        **options: Any,
    ) -> None:
        self.env_ids = env_ids
        columns = slice(env_ids.start, env_ids.stop)
        self.carried = carried_tables(spaces.layout)
        names = (*self.carried, "actions", "rewards", "terminations", "truncations")
        self.tables = {name: arrays[name][:, columns] for name in names}
        self.counts = arrays["counts"][columns]
        self.heartbeat = memoryview(heartbeat)
        self.seed = spaces.config.seed
        self.is_open = False
        self.report = Report()
        if make_actor:
            self.sampler = Sampler(spaces, arrays, env_ids, make_actor)
        self.columns = spaces.columns(self, spaces, **options)

    def beat(self) -> None:
        """Tell the trainer that a call of an environment begins."""
        self.heartbeat[0] += 1

    def next_seed(self, column: int, is_whole: bool) -> int:
        """Count an episode of a column, and return its seed. is_whole: whether a whole episode has
        ended before, rather than for the learner only."""
        number = int(self.counts[column])
        self.counts[column] = number + 1
        return integer_seed(self.seed, Stream.EPISODE, self.env_ids[column], number)

    def collect(
        self, iteration: int, attributes: Mapping[str, Any], should_stop: Callable[[], bool] = bool
    ) -> Report:
        """Collect a rollout of T steps. attributes: of environments, for new episodes; should_stop:
        looked at in each step."""
        self.begin(attributes)
        self.sampler.begin(iteration)
        for t in range(len(self.tables["actions"])):
            self.sampler(t)
            self.step(t)
            if should_stop():
                break
        return self.end()

    def begin(self, attributes: Mapping[str, Any]) -> None:
        """Begin a rollout with the last row of the previous one; the first one, with resets."""
        self.columns.attributes = dict(attributes)
        for name in self.carried:
            self.tables[name][0] = self.tables[name][-1]
        self.tables["terminations"][:] = False
        self.tables["truncations"][:] = False
        self.report = Report()
        if not self.is_open:
            self.report.new = [*self.env_ids]
            self.tables["states"][0] = 0
            self.columns.reset(0)
        self.is_open = True

    def step(self, t: int) -> None:
        """Step all columns by the actions of row t."""
        for column, last, episode in self.columns.step(t, self.tables["actions"][t]):
            states = self.tables["states"][t + 1, column]
            if last:
                last.rows["states"] = states.copy()
                self.report.last.append(last)
            if episode:
                self.report.episodes.append(episode)
            states[:] = 0

    def end(self) -> Report:
        """Return the report on a rollout. Raises BadValue if its numbers are not finite."""
        for name in ("rewards", NUMBERS):
            table = self.tables[name]
            if table.dtype.kind == "f" and not np.isfinite(table).all():
                t, column, *_ = np.argwhere(~np.isfinite(table))[0]
                raise BadValue(
                    f"environment {self.env_ids[column]} has returned {name} {table[t, column]}, "
                    f"which are not finite, in step {t} of the rollout"
                )
        for last in self.report.last:
            check_finite({NUMBERS: last.rows[NUMBERS]}, f"environment {last.environment}")
        return self.report

    def restore(self, episodes: Mapping[int, tuple[int, Any, ndarray]]) -> list[int]:
        """Repeat open episodes, given by environment: the number of the reset, attributes, and
        actions (L, D). Return the environments in which a new episode begins instead."""
        lost = []
        self.is_open = True
        for column, env_id in enumerate(self.env_ids):
            if not self._is_restored(column, episodes.get(env_id)):
                lost.append(env_id)
                self.tables["states"][-1, column] = 0
                self.columns.start_episode(-1, column)
        return lost

    def _is_restored(self, column: int, episode: tuple[int, Any, ndarray] | None) -> bool:
        if episode is None or not hasattr(self.columns, "replay"):
            return False
        number, attributes, actions = episode
        seed = integer_seed(self.seed, Stream.EPISODE, self.env_ids[column], number)
        try:
            return self.columns.replay(column, -1, seed, attributes, actions)
        except Exception:  # whatever the environment raises, a new episode avoids it
            return False

    def act_by(self, make_actor: MakeActor) -> None:
        """Act by another actor from the next rollout on."""
        self.sampler.act_by(make_actor)

    def close(self) -> None:
        self.columns.close()
