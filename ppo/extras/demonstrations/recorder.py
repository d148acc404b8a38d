"""Record demonstrations: of a policy, of a function of observations, or of a person who plays."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from gymnasium import Env, Space, Wrapper
from gymnasium.spaces import Box
from numpy import ndarray

from ppo.config.config import Config
from ppo.config.settings import settings_of
from ppo.envs.env_factories import EnvLike, as_env_name
from ppo.envs.episodes import Info, StepResult
from ppo.envs.make import as_it_is, make_env
from ppo.envs.seeding import Stream, integer_seed
from ppo.envs.spaces import ACTION_MASK, choices_of, leaves
from ppo.errors import ConfigError
from ppo.extras.demonstrations.format import (
    Demonstrations,
    check_inside,
    check_new,
    fit_part,
    label_of,
    name_of,
    observed_leaves,
    write_npz,
)
from ppo.policy.spectators import Spectator
from ppo.system.hardware import physical_memory
from ppo.system.process import not_daemonic

Controller = Callable[[Any], Any]
Row = list[ndarray]  # an array for each leaf of a space


@dataclass
class Episode:
    """An episode that is being recorded: L + 1 observations and masks, L actions and rewards."""

    seed: int
    observations: list[Row]
    masks: list[Any]
    actions: list[Row] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminated: bool = False


class Recording(Spectator):
    """What is recorded in one or more environments with the same spaces, until it is written.

    path: a new .npz file. Raises ConfigError if it cannot be written."""

    option: ClassVar[str] = "record"
    wraps: ClassVar[bool] = True

    def __init__(self, path: str | Path) -> None:
        self.path = check_new(str(path))
        self.result = f"demonstrations: {path}"
        self.recorders: list[Recorder] = []
        self.episodes: list[Episode] = []
        self.num_bytes = 0

    def wrap(self, env: Env) -> Env:
        return Recorder(env, self)

    def count(self, row: Row) -> None:
        """Count the memory of a row. Raises ConfigError if all rows have too much."""
        self.num_bytes += sum(part.nbytes for part in row)
        if self.num_bytes > physical_memory() // 4:
            raise ConfigError(
                f"--record={self.path}: the episodes take more than a quarter of this machine's "
                "memory: record fewer in a file"
            )

    def save(self) -> None:
        """Write all episodes, if there are any. Raises SaveFailed."""
        for recorder in self.recorders:
            recorder.end_episode()
        if self.episodes:
            env = self.recorders[0].env
            spaces = (env.observation_space, env.action_space)
            write_npz(Path(self.path), join(self.episodes, *spaces))
            self.episodes = []

    def __exit__(self, *exception: object) -> None:
        if exception[0] is None:
            self.save()


class Recorder(Wrapper):
    """Record the episodes of an environment: observations as it gives them, actions as it takes
    them. An episode without steps is left out; one that is cut off counts as truncated.

    path: a new .npz file, which close() writes; or a Recording. Raises ConfigError if it cannot be
    written, or if too much is recorded, ValueError for an action outside of the space."""

    def __init__(self, env: Env, path: str | Path | Recording) -> None:
        super().__init__(env)
        self.recording = path if isinstance(path, Recording) else Recording(path)
        self.recording.recorders.append(self)
        self.episode: Episode | None = None
        self.seen = [*observed_leaves(env.observation_space)]
        self.done = [*leaves(env.action_space)]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Info]:
        self.end_episode()
        observation, info = self.env.reset(seed=seed, options=options)
        first = self._row("observations", self.seen, observation)
        self.episode = Episode(-1 if seed is None else seed, [first], [info.get(ACTION_MASK)])
        return observation, info

    def step(self, action: Any) -> StepResult:
        done = self._row("actions", self.done, action)
        for (path, leaf), part in zip(self.done, done, strict=True):
            check_inside(leaf, part[None], label_of("actions", path))
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self.episode:
            is_over = bool(terminated or truncated)
            self.episode.actions.append(done)
            self.episode.rewards.append(float(reward))
            self.episode.observations.append(self._row("observations", self.seen, observation))
            # No action follows the last observation, so whatever it allows is not asked for.
            self.episode.masks.append(None if is_over else info.get(ACTION_MASK))
            self.episode.terminated = bool(terminated)
            if is_over:
                self.end_episode()
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        """Close the environment, and write what was recorded. Raises SaveFailed."""
        self.env.close()
        self.recording.save()

    def end_episode(self) -> None:
        """End the open episode, if there is one."""
        if self.episode and self.episode.actions:
            self.recording.episodes.append(self.episode)
        self.episode = None

    def _row(self, kind: str, parts: Sequence[tuple[tuple[Any, ...], Any]], value: Any) -> Row:
        """Return copies of the parts of an observation or of an action."""
        row = [
            fit_part(np.asarray(reduce(getitem, path, value))[None], leaf, label_of(kind, path))[0]
            for path, leaf in parts
        ]
        self.recording.count(row)
        return row


def join(
    episodes: Sequence[Episode], observation_space: Space[Any], action_space: Space[Any]
) -> Demonstrations:
    """Return recorded episodes, one after another."""
    lengths = [len(episode.actions) for episode in episodes]
    ends = np.cumsum(lengths) - 1
    terminations = np.zeros(sum(lengths), np.bool_)
    terminations[ends] = [episode.terminated for episode in episodes]
    truncations = np.zeros_like(terminations)
    truncations[ends] = ~terminations[ends]
    observations = [row for episode in episodes for row in episode.observations]
    actions = [row for episode in episodes for row in episode.actions]
    masks = [mask for episode in episodes for mask in episode.masks]
    return Demonstrations(
        observations=_tables(observed_leaves(observation_space), observations),
        actions=_tables(leaves(action_space), actions),
        rewards=np.array([reward for episode in episodes for reward in episode.rewards]),
        terminations=terminations,
        truncations=truncations,
        action_masks=_mask_tables(action_space, masks),
        seeds=np.array([episode.seed for episode in episodes]),
    )


def _tables(
    parts: Iterable[tuple[tuple[Any, ...], Any]], rows: Sequence[Row]
) -> dict[str, ndarray]:
    """Stack rows to a table for each part of a space."""
    return {name_of(path): np.stack([row[i] for row in rows]) for i, (path, _) in enumerate(parts)}


def _mask_tables(action_space: Space[Any], masks: Sequence[Any]) -> dict[str, ndarray]:
    """Return a table of action masks for each part with choices; none if no mask was given."""
    if all(mask is None for mask in masks):
        return {}
    tables = {}
    for path, leaf in leaves(action_space):
        if isinstance(leaf, Box):
            continue
        table = np.ones((len(masks), choices_of(leaf).sum()), np.bool_)
        for row, mask in zip(table, masks, strict=True):
            for key in path:
                mask = None if mask is None else _part(mask, key)
            if mask is not None:
                row[:] = np.hstack(mask).ravel()
        tables[name_of(path)] = table
    return tables


def _part(mask: Any, key: Any) -> Any:
    """Return the part of a nested mask, None if it has none."""
    try:
        return mask[key]
    except LookupError:
        return None


@not_daemonic()
def record(
    controller: Controller,
    env: Env | EnvLike,
    episodes: int,
    path: str | Path,
    seed: int = 0,
    **flags: Any,
) -> list[float]:
    """Play episodes by a function from an observation to an action, and record them; return their
    returns. A policy is recorded by Policy.evaluate(record=path).

    env: an environment, or, to make one, what train takes, with flags such as frame_skip: it is
    observed as the environment gives it, without the preprocessing of policies. path: a new
    .npz file; seed: determines the episodes' seeds. Raises ConfigError if the file is
    there already, EnvironmentUnavailable, SaveFailed, and what controller and environment raise."""
    if flags and isinstance(env, Env):
        raise ConfigError(f"{', '.join(flags)}: the environment is made already: leave them out")
    recording = Recording(path)
    made = None
    if not isinstance(env, Env):
        config = settings_of({**flags, "env_name": as_env_name(env)}).config
        env = made = make_env(config, finish=as_it_is)
    recorder = Recorder(env, recording)
    returns = []
    for episode in range(episodes):
        observation, _ = recorder.reset(seed=integer_seed(seed, Stream.EVALUATION, episode))
        total = 0.0
        for _ in range(Config.eval_max_steps):
            observation, reward, terminated, truncated, _ = recorder.step(controller(observation))
            total += float(reward)
            if terminated or truncated:
                break
        returns.append(total)
    recording.save()
    if made is not None:
        made.close()
    return returns
