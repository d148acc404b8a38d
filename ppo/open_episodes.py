"""Episodes that are open between two iterations: what a resumed run needs to repeat them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from ppo.rollout import Rollout

MAX_STEPS = 100_000  # repeating a longer open episode would take too much time


class OpenEpisodes:
    """Keep, for each environment, the number of the reset that began its whole episode, the
    attributes that it had then, and the actions since."""

    def __init__(self, num_envs: int) -> None:
        self.numbers = np.zeros(num_envs, np.int64)
        self.attributes: list[dict[str, Any]] = [{} for _ in range(num_envs)]
        self.actions: list[list[ndarray]] = [[] for _ in range(num_envs)]
        self.lengths = np.zeros(num_envs, np.int64)

    def update(self, rollout: Rollout, attributes: dict[str, Any]) -> None:
        """Add a rollout. attributes: of new episodes."""
        ended = rollout.dones.cumsum(0)
        before = rollout.counts - 1 - ended[-1]  # numbers of the last resets before the rollout
        self.restart(rollout.report.started, before, attributes)
        starts = [0] * len(self.numbers)
        for episode in rollout.report.episodes:
            starts[episode.environment] = episode.step + 1
            self.restart([episode.environment], before + ended[episode.step], attributes)
        for index, actions in enumerate(self.actions):
            if self.lengths[index] <= MAX_STEPS:
                actions.append(rollout.actions[starts[index] :, index].copy())
                self.lengths[index] += len(actions[-1])

    def restart(
        self, environments: Sequence[int], numbers: ndarray, attributes: dict[str, Any]
    ) -> None:
        """Note that episodes begin in some environments, by resets with these numbers (N,)."""
        for index in environments:
            self.numbers[index] = numbers[index]
            self.attributes[index] = dict(attributes)
            self.actions[index] = []
            self.lengths[index] = 0

    def to_replay(self) -> dict[int, tuple[int, dict[str, Any], ndarray]]:
        """Return number, attributes and actions (L, D) of each episode that is not too long."""
        return {
            index: (int(self.numbers[index]), self.attributes[index], np.concatenate(actions))
            for index, actions in enumerate(self.actions)
            if actions and self.lengths[index] <= MAX_STEPS
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "numbers": self.numbers,
            "lengths": self.lengths,
            "actions": tuple(x for actions in self.actions for x in actions),
            "attributes": self.attributes,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.numbers[:] = state["numbers"]
        self.lengths[:] = state["lengths"]
        self.attributes = list(state["attributes"])
        parts = np.split(np.array(state["actions"]), np.cumsum(self.lengths)[:-1])
        self.actions = [[part] for part in parts]
