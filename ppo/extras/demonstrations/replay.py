"""Turn demonstrations into what workers would have written for a policy that had played them."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Env, Space
from gymnasium.spaces import Box
from numpy import ndarray

from ppo.envs.episodes import Info, StepResult
from ppo.envs.make import preprocess
from ppo.envs.probe import Spaces
from ppo.envs.spaces import action_columns, choices_of, leaves, mask_converter, split_columns
from ppo.extras.demonstrations.format import Demonstrations, fit, name_of, nest
from ppo.system.hardware import check_memory

if TYPE_CHECKING:
    from ppo.config.config import Config


@dataclass(frozen=True)
class Examples:
    """What a policy has seen and done in E episodes, in R = S + E rows: those of an episode of L
    steps are its L + 1 observations.

    observations: (R, *observation), preprocessed, not normalised; actions: (R, D), in the last row
    of an episode zeros; action_masks: (R, M), None without masks; rewards: (R,), in the last row 0,
    None if they are unknown; is_step: (R,) bool, whether an action follows, which is so in all rows
    but the last ones; was_cut: (E,) bool, the episodes that did not terminate; episodes: (R,), the
    number of each row's episode."""

    observations: ndarray
    actions: ndarray
    action_masks: ndarray | None
    rewards: ndarray | None
    is_step: ndarray
    was_cut: ndarray
    episodes: ndarray


class Replay(Env):
    """Show the recorded observations, episode by episode, whatever the actions are."""

    def __init__(
        self,
        demonstrations: Demonstrations,
        observation_space: Space[Any],
        action_space: Space[Any],
    ) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self.demonstrations = demonstrations
        self.row = -1

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Info]:
        return self._next()

    def step(self, action: Any) -> StepResult:
        return self._next()[0], 0.0, False, False, {}

    def _next(self) -> tuple[Any, dict[str, Any]]:
        self.row += 1
        tables = self.demonstrations.observations

        def part_of(name: str) -> Any:
            return tables[name][self.row] if name in tables else None  # text is left out

        return nest(self.observation_space, part_of), {}


def replay(config: "Config", spaces: Spaces, demonstrations: Demonstrations) -> Examples:
    """Preprocess demonstrations as the environments of a run preprocess what they show.

    config: the run's, resolved. Raises ValueError if they are of other spaces, ConfigError if they
    do not fit into memory."""
    assert spaces.shown is not None
    demonstrations = fit(demonstrations, spaces.shown, spaces.actions)
    rows = demonstrations.rows
    env = preprocess(config, Replay(demonstrations, spaces.shown, spaces.actions))
    space: Any = env.observation_space
    num_rows = rows[-1].stop
    itemsize = space.dtype.itemsize + (0 if space.dtype == np.uint8 else 4)  # and normalised
    num_bytes = num_rows * math.prod(space.shape) * itemsize
    check_memory("screen_size or --frame_stack", num_bytes, "the demonstrations")
    observations = np.zeros((num_rows, *space.shape), space.dtype)
    for episode in rows:
        observations[episode.start], _ = env.reset()
        for row in episode[1:]:
            observations[row] = env.step(None)[0]
    is_step = np.ones(num_rows, np.bool_)
    is_step[[episode.stop - 1 for episode in rows]] = False
    tables = [*demonstrations.actions.values()]
    actions = action_columns(spaces.actions, tables, config.squash_actions, config.scale_actions)
    masks = _policy_masks(spaces, demonstrations, is_step)
    if masks is not None and not are_allowed(spaces.actions, actions, masks[is_step]).all():
        raise ValueError("an action is not allowed by its action_masks")
    ends = demonstrations.terminations | demonstrations.truncations
    return Examples(
        observations=observations,
        actions=_in_rows(actions, is_step),
        action_masks=masks,
        rewards=None
        if demonstrations.rewards is None
        else _in_rows(demonstrations.rewards, is_step),
        is_step=is_step,
        was_cut=~demonstrations.terminations[ends],
        episodes=np.repeat(np.arange(len(rows)), [len(episode) for episode in rows]),
    )


def _in_rows(table: ndarray, is_step: ndarray) -> ndarray:
    """Return a table (S, ...) of steps as one (R, ...) of rows, with zeros in the others."""
    rows = np.zeros((len(is_step), *table.shape[1:]), table.dtype)
    rows[is_step] = table
    return rows


def _policy_masks(
    spaces: Spaces, demonstrations: Demonstrations, is_step: ndarray
) -> ndarray | None:
    """Return the policy's masks (R, M), with everything allowed in rows without an action; None if
    there are none. Raises ValueError for masks of another size."""
    tables = demonstrations.action_masks
    if not tables:
        return None
    if not spaces.has_masks:
        raise ValueError("it has action_masks, which the environment does not give")
    known = {name_of(path) for path, _ in leaves(spaces.actions)}
    if unknown := tables.keys() - known:
        raise ValueError(f"the environment has no action_masks.{min(unknown)}")
    to_mask = mask_converter(spaces.actions)

    def mask_of(row: int) -> ndarray:
        rows = {name: table[row] for name, table in tables.items()}
        return to_mask(nest(spaces.actions, rows.get))

    return np.stack([mask_of(row) if acts else to_mask(None) for row, acts in enumerate(is_step)])


def are_allowed(space: Space[Any], columns: ndarray, masks: ndarray) -> ndarray:
    """Return which of a policy's actions (n, D) the policy's masks (n, M) allow: (n,) bool."""
    allowed = np.ones(len(columns), np.bool_)
    for leaf, own in split_columns(space, columns):
        if not isinstance(leaf, Box):
            most = choices_of(leaf).max()
            mask, masks = np.split(masks, [own.shape[1] * most], axis=1)
            choices = mask.reshape(*own.shape, most)
            chosen = np.take_along_axis(choices, own[..., None].astype(np.int64), axis=-1)
            allowed &= chosen.all((1, 2))
    return allowed
