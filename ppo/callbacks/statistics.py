"""Statistics of the episodes of a run."""

from collections import deque
from itertools import chain
from statistics import fmean

import numpy as np

from ppo.algorithm.rollout import Metrics
from ppo.envs.worker import Episode
from ppo.system.state_dict import State

RECENT = 100  # episodes that are averaged, or more
MAX_METRICS = 64  # of an environment's own
RETURN, LENGTH, OWN = "episode_return_mean", "episode_length_mean", "env/"


class Recent:
    """The last values of a metric in each environment, of all together 100 or more."""

    def __init__(self, num_envs: int) -> None:
        size = -(-RECENT // num_envs)
        self.values: list[deque[float]] = [deque(maxlen=size) for _ in range(num_envs)]
        self.means = np.full(num_envs, np.nan)
        self.changed: set[int] = set()  # environments whose mean is not up to date

    def add(self, environment: int, value: float) -> None:
        """Add the value of an episode that is over."""
        self.values[environment].append(value)
        self.changed.add(environment)

    def mean(self) -> float:
        """Return the mean of the means of all environments that have values."""
        for environment in self.changed:
            self.means[environment] = fmean(self.values[environment])
        self.changed.clear()
        return float(np.nanmean(self.means))

    def all(self) -> list[float]:
        """Return all values, one environment's after the other's."""
        return [*chain(*self.values)]


class EpisodeStatistics:
    """Count episodes, and average the return and length of the last ones of each environment, and
    each of the environment's own metrics over the last ones that report it.

    Of episodes that begin together the short ones end first, and those of one length together: in a
    mean of those that ended last, now the short ones count too much and now the long ones. So each
    environment counts alike, and means have no value until each has ended an episode.

    waiting: those that have not since all of them began; has_too_many: whether they have reported
    more than MAX_METRICS names."""

    def __init__(self, num_envs: int = 1) -> None:
        self.num_envs = num_envs
        self.waiting = {*range(num_envs)}
        self.count = 0
        self.has_too_many = False
        self.recent = {RETURN: Recent(num_envs), LENGTH: Recent(num_envs)}

    @property
    def returns(self) -> list[float]:
        """The returns that are averaged."""
        return self.recent[RETURN].all()

    def add(self, episode: Episode) -> None:
        """Add an episode that is over."""
        self.count += 1
        environment = episode.environment
        self.waiting.discard(environment)
        self.recent[RETURN].add(environment, episode.episode_return)
        self.recent[LENGTH].add(environment, episode.episode_length)
        for key, value in episode.metrics.items():
            name = f"{OWN}{key}"
            if name not in self.recent and len(self.recent) < MAX_METRICS + 2:
                self.recent[name] = Recent(self.num_envs)
            if name in self.recent:
                self.recent[name].add(environment, value)
            else:
                self.has_too_many = True

    def means(self) -> Metrics:
        """Return the averages, None as long as they have no value; the environment's own by the
        names env/..., from the first episode on that reports them."""
        has_value = self.count and not self.waiting
        return {name: recent.mean() if has_value else None for name, recent in self.recent.items()}

    def state_dict(self) -> State:
        """Return the count, the episodes that are averaged, and those with the environment's own
        metrics, if there are any; how many of them are of each environment, and who is waiting."""
        columns = [self.recent[name].all() for name in (RETURN, LENGTH)]
        own = {name: recent for name, recent in self.recent.items() if name.startswith(OWN)}
        state: State = {
            "episodes": self.count,
            "episodes.recent": np.column_stack(columns),
            "episodes.counts": {
                name: [*map(len, recent.values)] for name, recent in self.recent.items()
            },
            "episodes.waiting": sorted(self.waiting),
        }
        if own:
            state["episodes.metrics"] = {name[len(OWN) :]: x.all() for name, x in own.items()}
        return state

    def load_state_dict(self, state: State) -> None:
        """Load a state dict; other names in it are ignored. One of version 1 does not say which
        environments its episodes are of: they are taken to have ended by turns."""
        self.count = int(state["episodes"])
        self.waiting &= {*state.get("episodes.waiting", [])}
        found = dict(zip((RETURN, LENGTH), state["episodes.recent"].T.tolist(), strict=True))
        found |= {f"{OWN}{name}": x for name, x in state.get("episodes.metrics", {}).items()}
        for name, values in found.items():
            counts = state.get("episodes.counts", {}).get(name)
            environments = np.arange(len(values)) % self.num_envs
            if counts is not None:
                if len(counts) != self.num_envs or min(counts) < 0 or sum(counts) != len(values):
                    raise ValueError(f"episodes.counts do not fit the values of {name}")
                environments = np.repeat(np.arange(self.num_envs), counts)
            recent = self.recent[name] = Recent(self.num_envs)
            for environment, value in zip(environments.tolist(), values, strict=True):
                recent.add(environment, float(value))
