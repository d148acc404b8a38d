"""Statistics of the episodes of a run."""

from collections import deque
from statistics import fmean

import numpy as np

from ppo.algorithm.rollout import Metrics
from ppo.envs.worker import Episode
from ppo.system.state_dict import State

RECENT = 100  # episodes that are averaged
MAX_METRICS = 64  # of an environment's own


class EpisodeStatistics:
    """Count episodes, and average the return and length of the last 100, and each of the
    environment's own metrics over the last 100 that report it.

    has_too_many: whether the environment has reported more than MAX_METRICS names."""

    def __init__(self) -> None:
        self.count = 0
        self.has_too_many = False
        self.returns: deque[float] = deque(maxlen=RECENT)
        self.lengths: deque[float] = deque(maxlen=RECENT)
        self.metrics: dict[str, deque[float]] = {}

    def add(self, episode: Episode) -> None:
        """Add an episode that is over."""
        self.count += 1
        self.returns.append(episode.episode_return)
        self.lengths.append(episode.episode_length)
        for name, value in episode.metrics.items():
            if name in self.metrics or len(self.metrics) < MAX_METRICS:
                self.metrics.setdefault(name, deque(maxlen=RECENT)).append(value)
            else:
                self.has_too_many = True

    def means(self) -> Metrics:
        """Return the averages, None before there is an episode; the environment's own by the names
        env/..., from the first episode on that reports them."""
        return {
            "episode_return_mean": fmean(self.returns) if self.returns else None,
            "episode_length_mean": fmean(self.lengths) if self.lengths else None,
            **{f"env/{name}": fmean(values) for name, values in self.metrics.items()},
        }

    def state_dict(self) -> State:
        """Return the count and the last 100 episodes, and those with the environment's own
        metrics, if there are any."""
        recent = np.column_stack([self.returns, self.lengths])
        state: State = {"episodes": self.count, "episodes.recent": recent}
        if self.metrics:
            state["episodes.metrics"] = {name: [*x] for name, x in self.metrics.items()}
        return state

    def load_state_dict(self, state: State) -> None:
        """Load a state dict; other names in it are ignored."""
        self.count = int(state["episodes"])
        for episode_return, length in state["episodes.recent"].tolist():
            self.returns.append(episode_return)
            self.lengths.append(length)
        metrics = state.get("episodes.metrics", {})
        self.metrics = {name: deque(values, RECENT) for name, values in metrics.items()}
