"""Batches and teams of which a chosen call does what none should do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from tests.faults import ACTS

LENGTH = 10  # of the episodes in the first column, or of all agents


class Odd(BaseException):
    """A BaseException of an environment's own."""


def raise_odd() -> None:
    raise Odd("a wheel came off")


def as_text(values: Any) -> Any:
    """A value as a text, or an array of texts."""
    return values.astype(str) if isinstance(values, np.ndarray) else str(values)


# What a step returns in place of one of its five results, which have these places.
OBSERVATIONS, REWARDS, TERMINATIONS, TRUNCATIONS, INFOS = range(5)
ARRAYS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "nan": (OBSERVATIONS, lambda seen: seen * np.float32("nan")),
    "shape": (OBSERVATIONS, lambda seen: seen[..., :1]),
    "outside": (OBSERVATIONS, lambda seen: seen + np.float32(1e6)),
    "reward_nan": (REWARDS, lambda reward: reward * float("nan")),
    "reward_words": (REWARDS, lambda reward: "much"),
    "reward_digits": (REWARDS, lambda reward: as_text(reward)),
    "termination_words": (TERMINATIONS, lambda ended: as_text(ended)),
    "termination_nan": (TERMINATIONS, lambda ended: ended * float("nan")),
    "truncation_words": (TRUNCATIONS, lambda ended: as_text(ended)),
}
ROWS: dict[str, int] = {
    "rows": OBSERVATIONS,
    "reward_rows": REWARDS,
    "truncation_rows": TRUNCATIONS,
}


class Damage:
    """When a call is damaged, and how.

    where: "constructor", "reset", "step" or "close"; what: a key of ARRAYS, ROWS or ACTS, or one of
    the few below; after: so many such calls are well; marker: a file that the damage makes, and
    with which all is well, "" for none."""

    def __init__(self, where: str, what: str, after: int, marker: str) -> None:
        self.where = where
        self.what = what
        self.after = after
        self.marker = marker
        self.num_calls = 0
        self.act("constructor")

    def act(self, where: str) -> bool:
        """Do it if it is time to; return whether it is."""
        if where != self.where:
            return False
        self.num_calls += 1
        if self.num_calls <= self.after:
            return False
        if self.marker:
            try:
                Path(self.marker).touch(exist_ok=False)
            except FileExistsError:
                return False
        if self.what == "odd":
            raise_odd()
        ACTS.get(self.what, int)()
        return True

    def of_step(self, results: tuple[Any, ...], lessen: Callable[..., Any]) -> Any:
        """Return the damaged results of a step. lessen(change, x): applied to one of them; a change
        of None takes a row away."""
        found = list(results)
        if self.what in ARRAYS:
            place, change = ARRAYS[self.what]
            found[place] = lessen(change, found[place])
        elif self.what in ROWS:
            found[ROWS[self.what]] = lessen(None, found[ROWS[self.what]])
        elif self.what == "infos":
            found[INFOS] = []
        elif self.what == "four_results":
            del found[REWARDS]
        return tuple(found)


class Damaged(VectorEnv):
    """Environments that count, and are paid for action 1.

    has_masks: whether infos have masks, which allow everything; reuses: whether all calls return
    the same arrays. Others: of Damage."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.DISABLED}
    single_observation_space = spaces.Box(-99, 99, (3,))
    single_action_space = spaces.Discrete(2)

    def __init__(
        self,
        num_envs: int,
        where: str = "",
        what: str = "",
        after: int = 0,
        marker: str = "",
        has_masks: bool = False,
        reuses: bool = False,
    ) -> None:
        self.damage = Damage(where, what, after, marker)
        self.num_envs = num_envs
        self.has_masks = has_masks
        self.reuses = reuses
        self.seen = np.zeros((num_envs, 3), np.float32)
        self.seen[:, 0] = np.arange(num_envs)
        self.rewards = np.zeros(num_envs)
        self.ends = np.zeros(num_envs, np.bool_)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        is_damaged = self.damage.act("reset")
        for i in np.flatnonzero((options or {}).get("reset_mask", np.ones(len(self.seen)))):
            self.seen[i, 1] = 0
            self.seen[i, 2] = np.random.default_rng(seed[i]).normal()
        if is_damaged and self.damage.what == "only_observations":
            return self._shown(self.seen)
        return self._shown(self.seen), self._infos(is_damaged)

    def step(self, actions: Any) -> Any:
        is_damaged = self.damage.act("step")
        self.seen[:, 1] += 1
        self.rewards[:] = actions
        self.ends[:] = self.seen[:, 1] >= LENGTH + self.seen[:, 0]
        shown = [*map(self._shown, (self.seen, self.rewards, self.ends))]
        results = (*shown, np.zeros_like(self.ends), self._infos(is_damaged))
        if is_damaged:
            return self.damage.of_step(results, lambda change, x: change(x) if change else x[1:])
        return results

    def close(self, **options: Any) -> None:
        self.damage.act("close")

    def _shown(self, array: np.ndarray) -> np.ndarray:
        return array if self.reuses else array.copy()

    def _infos(self, is_damaged: bool) -> dict[str, Any]:
        if not self.has_masks:
            return {}
        masks = np.ones((len(self.seen), 2), np.int8)
        if is_damaged and self.damage.what == "mask":
            masks = masks[:, :1]
        if is_damaged and self.damage.what == "mask_rows":
            masks = masks[1:]
        return {"action_mask": masks}


class DamagedTeam:
    """The same as a team of two agents, who leave together."""

    possible_agents = ("left", "right")
    render_mode = None

    def __init__(
        self,
        where: str = "",
        what: str = "",
        after: int = 0,
        marker: str = "",
        has_masks: bool = False,
    ) -> None:
        self.damage = Damage(where, what, after, marker)
        self.has_masks = has_masks
        self.agents: list[str] = []

    @property
    def unwrapped(self) -> "DamagedTeam":
        return self

    def observation_space(self, agent: str) -> Any:
        return Damaged.single_observation_space

    def action_space(self, agent: str) -> Any:
        return Damaged.single_action_space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        is_damaged = self.damage.act("reset")
        self.age = 0
        self.agents = [*self.possible_agents]
        if is_damaged and self.damage.what == "only_observations":
            return self._observe()
        return self._observe(), self._infos(is_damaged)

    def step(self, actions: dict[str, int]) -> Any:
        is_damaged = self.damage.act("step")
        self.age += 1
        rewards = {agent: float(action) for agent, action in actions.items()}
        ends = dict.fromkeys(actions, self.age >= LENGTH)
        truncations = dict.fromkeys(actions, False)
        results = (self._observe(), rewards, ends, truncations, self._infos(is_damaged))
        if self.age >= LENGTH:
            self.agents = []
        if is_damaged:
            return self.damage.of_step(results, self._change)
        return results

    def close(self) -> None:
        self.damage.act("close")

    @staticmethod
    def _change(change: Any, values: dict[str, Any]) -> dict[str, Any]:
        if change is None:
            return {"left": values["left"]}
        return {agent: change(value) for agent, value in values.items()}

    def _observe(self) -> dict[str, Any]:
        return {
            agent: np.array([i, self.age, 0], np.float32)
            for i, agent in enumerate(self.possible_agents)
        }

    def _infos(self, is_damaged: bool) -> dict[str, Any]:
        if not self.has_masks:
            return {agent: {} for agent in self.possible_agents}
        size = 1 if is_damaged and self.damage.what == "mask" else 2
        return {agent: {"action_mask": np.ones(size)} for agent in self.possible_agents}
