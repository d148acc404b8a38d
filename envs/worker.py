"""Collect rollouts: act and step some columns of the rollout, and report what has ended."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box
from numpy import ndarray

from ppo.envs.episodes import WHOLE_EPISODE, Episode, Values, episode_metrics
from ppo.envs.make import Spaces, check_finite, columns_of
from ppo.envs.normalize import Arrays
from ppo.envs.observations import NUMBERS
from ppo.envs.sampler import MakeActor, Sampler
from ppo.envs.seeding import Stream, integer_seed
from ppo.envs.spaces import mask_converter
from ppo.errors import BadValue

STEPS = ("actions", "rewards", "terminations", "truncations", "features", "present")  # tables


class LastObservation(NamedTuple):
    """The last observation of an episode that was truncated at this step: a row of each table."""

    step: int
    environment: int
    rows: dict[str, ndarray]


@dataclass
class Report:
    """What a worker reports of a rollout besides its tables. started: environments whose episode
    began in the first row."""

    episodes: list[Episode] = field(default_factory=list)
    truncated: list[LastObservation] = field(default_factory=list)
    started: list[int] = field(default_factory=list)


def merged(reports: list[Report]) -> Report:
    """Merge the reports of several workers, in the order of steps and environments."""
    return Report(
        sorted(x for report in reports for x in report.episodes),
        sorted(x for report in reports for x in report.truncated),
        sorted(x for report in reports for x in report.started),
    )


def table_shapes(
    spaces: Spaces, num_steps: int, num_envs: int, state_size: int, num_features: int = 0
) -> dict[str, Any]:
    """Return shape and dtype of each array that workers share, by name (see ppo.rollout)."""
    rows = (num_steps, num_envs)
    rows_and_next = (num_steps + 1, num_envs)
    layout = spaces.layout
    actions = spaces.actions
    dtype = np.float32 if isinstance(actions, Box) else np.int64
    mask_size = mask_converter(actions)(None).size if spaces.has_masks else 0
    numbers = layout.tables[NUMBERS] if layout.has_numbers else Box(0, 0, ())
    return {
        **{name: ((*rows_and_next, *x.shape), x.dtype) for name, x in layout.tables.items()},
        "actions": ((*rows, math.prod(actions.shape)), dtype),
        "rewards": (rows, np.float32),
        "terminations": (rows, np.bool_),
        "truncations": (rows, np.bool_),
        "present": (rows, np.bool_),
        "features": ((*rows, num_features), np.float32),
        "states": ((*rows_and_next, state_size), np.float32),
        "action_masks": ((*rows_and_next, mask_size), np.bool_),
        "counts": ((num_envs,), np.int64),
        "beats": ((num_envs, 8), np.int64),  # each in a cache line of its own
        "shift": (numbers.shape, np.result_type(numbers.dtype, np.float32)),
        "scale": (numbers.shape, np.float32),
    }


def carried_tables(spaces: Spaces) -> list[str]:
    """Return the names of the tables with a row T, which begins the next rollout."""
    return ["states", "action_masks", *spaces.layout.tables]


class Worker:
    """Step columns of the rollout; with an actor, draw their actions. arrays: the run's shared
    memory; options: of the columns."""

    def __init__(
        self,
        spaces: Spaces,
        arrays: Arrays,
        env_ids: range,
        make_actor: MakeActor | None = None,
        should_stop: Callable[[], bool] = bool,
        **options: Any,
    ) -> None:
        self.env_ids = env_ids
        columns = slice(env_ids.start, env_ids.stop)
        self.carried = carried_tables(spaces)
        names = (*self.carried, *STEPS)
        self.tables = {name: arrays[name][:, columns] for name in names}
        self.counts = arrays["counts"][columns]
        self.beats = memoryview(arrays["beats"][env_ids.start])
        self.should_stop = should_stop
        self.seed = spaces.config.seed
        self.is_open = False
        self.attributes: Values = {}  # of new episodes
        if make_actor:
            self.sampler = Sampler(spaces, {**arrays, **self.tables}, env_ids, make_actor)
        self.columns = columns_of(spaces.make_env)(self, spaces, **options)
        self.close = self.columns.close

    def beat(self) -> None:
        """Tell the trainer that a call of an environment begins."""
        self.beats[0] += 1

    def next_seed(self, column: int, is_whole: bool) -> int:
        """Count an episode of a column, and return its seed. is_whole: whether the one before
        was whole, False if it ended for the learner only (an evaluation plays on)."""
        number = int(self.counts[column])
        self.counts[column] += 1
        return integer_seed(self.seed, Stream.EPISODE, self.env_ids[column], number)

    def collect(self, iteration: int, attributes: Values) -> Report | None:
        """Collect a rollout of T steps. attributes: of environments, for new episodes."""
        self.begin(attributes)
        self.sampler.begin(iteration)
        for t in range(len(self.tables["actions"])):
            if self.should_stop():
                return None
            self.sampler(t)
            report = self.step(t)
        return report

    def begin(self, attributes: Values) -> None:
        """Begin a rollout with the last row of the previous one; the first one, with resets."""
        self.attributes = dict(attributes)
        for name in self.carried:
            self.tables[name][0] = self.tables[name][-1]
        self.tables["terminations"][:] = False
        self.tables["truncations"][:] = False
        self.report = Report()
        if not self.is_open:
            self.report.started = [*self.env_ids]
            self.tables["states"][0] = 0
            self.columns.reset(0)
        self.is_open = True

    def end_episode(self, t: int, column: int, last: Arrays | None, info: Values) -> None:
        """Record the end of an episode at step t. last: a row of each table if the episode was
        truncated, None if it has terminated; info: the last one, of a whole episode or not."""
        index = self.env_ids[column]
        states = self.tables["states"][t + 1, column]
        self.tables["terminations" if last is None else "truncations"][t, column] = True
        if last is not None:
            rows = {name: x.copy() for name, x in {**last, "states": states}.items()}
            self.report.truncated.append(LastObservation(t, index, rows))
        if WHOLE_EPISODE in info:
            total, length = info[WHOLE_EPISODE]
            episode = Episode(t, index, total, length, episode_metrics(info))
            self.report.episodes.append(episode)
        states[:] = 0

    def step(self, t: int) -> Report | None:
        """Step all columns by the actions of row t; return the report after the last row. Raises
        BadValue if numbers of the rollout are not finite."""
        self.columns.step(t, self.tables["actions"][t])
        if t < len(self.tables["actions"]) - 1:
            return None
        for name, table in self.tables.items():
            is_checked = name in ("rewards", NUMBERS) and table.dtype.kind == "f"
            if is_checked and not np.isfinite(table).all():
                step, column, *_ = np.argwhere(~np.isfinite(table))[0]
                raise BadValue(
                    f"environment {self.env_ids[column]} returned non-finite {name} "
                    f"({table[step, column]!s:.200}) in row {step} of the rollout"
                )
        for last in self.report.truncated:
            check_finite(last.rows, f"environment {last.environment}")
        return self.report

    def restore(self, episodes: dict[int, Any], attributes: Values) -> list[int]:
        """Repeat open episodes, given by environment: the number of the reset, its attributes, and
        actions (L, D). Return the environments in which a new episode begins instead, which has the
        present attributes."""
        lost = []
        self.is_open = True
        self.attributes = attributes
        for column, index in enumerate(self.env_ids):
            try:
                number, own, actions = episodes[index]
                seed = integer_seed(self.seed, Stream.EPISODE, index, number)
                is_restored = self.columns.replay(column, seed, own, actions)
            except Exception:  # there is no episode or no replay, or the environment raises
                is_restored = False
            if not is_restored:
                lost.append(index)
                self.tables["states"][-1, column] = 0
                self.columns.start_episode(-1, column)
        return lost
