"""Prioritized level replay (Jiang et al. 2021, https://arxiv.org/abs/2010.03934)."""

import numpy as np
import torch
from numpy import ndarray

from ppo.algorithm.rollout import Batch, Metrics, Rollout
from ppo.callbacks.base import Callback, Run
from ppo.components import Components
from ppo.errors import CheckpointError, ConfigError
from ppo.extras.levels.episodes import WEIGHTS
from ppo.extras.levels.flags import LevelFlags, parse_levels
from ppo.parts import Part
from ppo.system.state_dict import State

NAME = "levels"  # of the part
TABLES = ("scores", "means", "episodes", "played", "weights")  # of its state
RATE = 0.1  # of the moving averages of returns, in which an episode counts
UNITS = 1_000_000  # of which weights are integers: drawing is exact on any machine


def check(parts: Components) -> list[str]:
    """Raise ConfigError if episodes end for the learner only, and no level with them."""
    if LevelFlags.of(parts.config).levels and parts.config.end_on_life_loss:
        raise ConfigError("--levels are of whole games: give --end_on_life_loss=False")
    return []


def make_parts(parts: Components) -> dict[str, Part]:
    """Return the part of a run with levels."""
    levels = LevelFlags.of(parts.config).levels
    return {NAME: LevelReplay(parts, len(parse_levels(levels)[1]))} if levels else {}


def make_callbacks(parts: Components) -> list[Callback]:
    """Return the callback of a run with levels."""
    part = parts.extension_parts.get(NAME)
    return [LogLevels(part)] if isinstance(part, LevelReplay) else []


def replay_probabilities(
    scores: ndarray, staleness: ndarray, temperature: float, mix: float
) -> ndarray:
    """Return with which probability each of L levels is played next, (L,): (1 - mix) times that by
    scores, which is proportional to rank^(-1 / temperature) of the rank 1 for the highest score,
    and mix times that by staleness, which is proportional to it (Jiang et al. 2021, section 3).
    Levels of one score, such as all that are never won, share what their ranks have.

    scores, staleness: (L,), the latter not negative: how long ago a level was played."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    by_score = _mean_of_equals(ranks ** (-1 / temperature), scores)
    by_staleness = staleness if staleness.any() else np.ones(len(scores))
    return (1 - mix) * by_score / by_score.sum() + mix * by_staleness / by_staleness.sum()


def _mean_of_equals(numbers: ndarray, keys: ndarray) -> ndarray:
    """Return numbers (L,), each replaced by the mean of those that have the same key (L,)."""
    _, group = np.unique(keys, return_inverse=True)
    return (np.bincount(group, numbers) / np.bincount(group))[group]


class LevelReplay(Part):
    """Score the levels that were played in each rollout, and weight all of them for the next one.

    Levels that were never played come first, all alike; then they are replayed.

    scores (L,): of the last rollout that had steps of a level, the mean of their absolute
    advantages, as the paper has it of an episode; or the standard deviation of a level's returns,
    by moving averages. For returns of 0 and 1 its square is learnability, p (1 - p) where a share p
    is won (Rutherford et al. 2024, "No Regrets"). means, episodes (L,): of these returns, and how
    many there were; played (L,): the iteration in which a level was played last, 0 for never;
    weights (L,): integers, as likely as levels are drawn in the next rollout."""

    def __init__(self, parts: Components, num_levels: int) -> None:
        self.parts = parts
        self.scores = np.zeros(num_levels)
        self.means = np.zeros(num_levels)
        self.episodes = np.zeros(num_levels, np.int64)
        self.played = np.zeros(num_levels, np.int64)
        self.weights = np.ones(num_levels, np.int64)
        self.metrics: Metrics = {}

    def on_batch(self, rollout: Rollout, batch: Batch) -> None:
        """Score by the rollouts of all processes, which thereby have the same weights."""
        levels = rollout.levels[..., 0].astype(np.int64)  # (T, N)
        advantages = torch.as_tensor(batch["advantages"]).abs().cpu().numpy()
        size = len(self.scores)
        counts = np.bincount(levels.ravel(), minlength=size)
        sums = np.bincount(levels.ravel(), advantages, size)
        ended = [
            (levels[episode.step, episode.environment], episode.episode_return)
            for episode in rollout.info.episodes
        ]
        gathered = self.parts.peers.gather((counts, sums, ended))
        counts, sums = (sum(each[k] for each in gathered) for k in (0, 1))
        flags = LevelFlags.of(self.parts.config)
        if flags.level_scores == "return":
            for level, episode_return in (x for each in gathered for x in each[2]):
                self._add_return(level, episode_return)
        else:
            is_new = (counts > 0) & np.isfinite(sums)
            self.scores[is_new] = sums[is_new] / counts[is_new]
        self.played[counts > 0] = self.parts.iteration
        self.weights = self._next_weights(flags)
        is_seen = self.played > 0
        self.metrics = {
            "levels/seen": is_seen.mean(),
            "levels/score": self.scores[is_seen].mean(),
            "levels/place": (counts * np.arange(size)).sum() / counts.sum(),
        }

    def _add_return(self, level: int, episode_return: float) -> None:
        """Add an episode to the moving averages of a level's returns, and of their variance."""
        self.episodes[level] += 1
        rate = max(1 / self.episodes[level], RATE)  # all alike, as long as they are few
        difference = episode_return - self.means[level]
        self.means[level] += rate * difference
        variance = (1 - rate) * (self.scores[level] ** 2 + rate * difference**2)
        self.scores[level] = np.sqrt(variance)

    def env_attributes(self) -> State:
        return {WEIGHTS: self.weights.tolist()}

    def _next_weights(self, flags: LevelFlags) -> ndarray:
        """Return the weights of levels in the next rollout."""
        is_unseen = self.played == 0
        if flags.level_scores == "uniform":
            return np.ones_like(self.weights)
        if is_unseen.any():
            return is_unseen.astype(np.int64)
        staleness = (self.parts.iteration - self.played).clip(0)
        probabilities = replay_probabilities(
            self.scores, staleness, flags.level_temperature, flags.level_staleness
        )
        return np.rint(UNITS * probabilities).astype(np.int64)

    def state_dict(self) -> State:
        return {name: torch.from_numpy(vars(self)[name].copy()) for name in TABLES}

    def load_state_dict(self, state: State) -> None:
        """Load a state dict. Raises CheckpointError for numbers that no run has."""
        arrays = {name: state[name].numpy().copy() for name in TABLES if state}
        for name, table in arrays.items():
            if name != "means" and (table < 0).any():
                raise CheckpointError(f"levels.{name} has a number that no run has: give another")
        if state and not arrays["weights"].any():
            raise CheckpointError("levels.weights are all 0: give another")
        vars(self).update(arrays)


class LogLevels(Callback):
    """Log how many levels have been seen, their mean score, and the mean place of the levels of
    this iteration's steps in --levels, from 0."""

    def __init__(self, replay: LevelReplay) -> None:
        self.replay = replay

    def on_iteration(self, run: Run) -> None:
        for name, value in self.replay.metrics.items():
            run.log(name, value)
