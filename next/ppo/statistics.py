"""Statistics of the episodes of a run."""

from collections import deque
from statistics import fmean
from typing import Any

from ppo.envs.episodes import Episode
from ppo.rollout import Metrics

RECENT = 100  # episodes that are averaged
RETURN, LENGTH, OWN = "episode_return_mean", "episode_length_mean", "env/"
MAX_METRICS = 64  # with the environment's own


class EpisodeStatistics:
    """Return, length and custom metrics of the last episodes, by the name of their mean."""

    def __init__(self) -> None:
        self.count = 0
        self.recent = {name: deque[float](maxlen=RECENT) for name in (RETURN, LENGTH)}

    def add(self, episode: Episode) -> None:
        """Add an episode that is over."""
        self.count += 1
        values = {RETURN: episode.episode_return, LENGTH: float(episode.episode_length)}
        values |= {f"{OWN}{name}": x for name, x in episode.metrics.items()}
        for name, value in values.items():
            if name in self.recent or len(self.recent) < MAX_METRICS:
                self.recent.setdefault(name, deque(maxlen=RECENT)).append(value)

    def means(self) -> Metrics:
        """Return the averages, None before the first episode."""
        return {name: fmean(values) if values else None for name, values in self.recent.items()}

    def state_dict(self) -> dict[str, Any]:
        recent = {name: [*values] for name, values in self.recent.items()}
        return {"count": self.count, "recent": recent}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = int(state["count"])
        for name, values in state["recent"].items():
            self.recent[name] = deque(values, maxlen=RECENT)
