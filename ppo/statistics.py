"""Statistics of the episodes of a run."""

from collections import deque
from statistics import fmean
from typing import Any

import numpy as np

from ppo.envs.episodes import Episode
from ppo.rollout import Metrics

RECENT = 100  # at least this many episodes are averaged
RETURN, LENGTH, OWN = "episode_return_mean", "episode_length_mean", "env/"
MAX_METRICS = 64  # with the environment's own


class EpisodeStatistics:
    """Average return, length and custom metrics of the last episodes of each environment, which
    count alike: of episodes that begin together the short ones end first, and would count too much.
    Means have no value until each has ended an episode. waiting: the environments that have not."""

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.count = 0
        self.waiting = {*range(num_envs)}
        self.recent = {RETURN: self._empty(), LENGTH: self._empty()}

    def _empty(self) -> list[deque[float]]:
        size = -(-RECENT // self.num_envs)
        return [deque(maxlen=size) for _ in range(self.num_envs)]

    @property
    def returns(self) -> list[float]:
        """The returns that are averaged."""
        return [x for values in self.recent[RETURN] for x in values]

    def add(self, episode: Episode) -> None:
        """Add an episode that is over."""
        self.count += 1
        self.waiting.discard(episode.environment)
        values = {RETURN: episode.episode_return, LENGTH: float(episode.episode_length)}
        values |= {f"{OWN}{name}": x for name, x in episode.metrics.items()}
        for name, value in values.items():
            if name in self.recent or len(self.recent) < MAX_METRICS:
                columns = self.recent.setdefault(name, self._empty())
                columns[episode.environment].append(value)

    def means(self) -> Metrics:
        """Return the averages, None as long as they have no value."""
        if self.waiting:
            return dict.fromkeys(self.recent)
        return {
            name: float(np.mean([fmean(values) for values in columns if values]))
            for name, columns in self.recent.items()
        }

    def state_dict(self) -> dict[str, Any]:
        recent = {name: [[*x] for x in columns] for name, columns in self.recent.items()}
        return {"count": self.count, "waiting": sorted(self.waiting), "recent": recent}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = int(state["count"])
        self.waiting = {*state["waiting"]}
        for name, columns in state["recent"].items():
            self.recent[name] = self._empty()
            for own, values in zip(self.recent[name], columns, strict=True):
                own.extend(values)
