"""Callbacks by which benchmarks watch and change runs."""

from collections import deque
from collections.abc import Callable
from statistics import fmean, pstdev
from typing import Any

from ppo.callbacks import Callback

TRIAL, PROOF = 10, 100  # episodes of evaluations


class Solved(Callback):
    """End the run when the mean return of 100 deterministic episodes reaches a threshold.

    They are played when the last episodes of training come near it, and ten of them reach it."""

    def __init__(self, threshold: float) -> None:
        self.watch = Watch(threshold)

    def on_episode(self, run: Any, episode: Any) -> None:
        self.watch.add(episode.episode_return)

    def on_iteration(self, run: Any) -> None:
        if self.watch.is_solved(lambda episodes: run.evaluate(episodes).mean):
            run.stop("solved")


class Watch:
    """Decide when to evaluate, and whether an environment is solved; also for other trainers."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.returns: deque[float] = deque(maxlen=100)  # of the last episodes of training
        self.count = 0  # of episodes
        self.next_try = TRIAL

    def add(self, episode_return: float) -> None:
        self.returns.append(episode_return)
        self.count += 1

    def is_solved(self, evaluate: Callable[[int], float | None]) -> bool:
        """Return whether evaluations, if they are worth their time, reach the threshold."""
        if self.count < self.next_try:
            return False
        if fmean(self.returns) + pstdev(self.returns) < self.threshold:
            return False
        self.next_try = self.count + 3 * TRIAL
        if not self.reaches(evaluate(TRIAL)):
            return False
        self.next_try = self.count + PROOF
        return self.reaches(evaluate(PROOF))

    def reaches(self, mean: float | None) -> bool:
        return mean is not None and mean >= self.threshold


class Heavier(Callback):
    """A curriculum for CartPole: more gravity whenever the mean return has become greater."""

    def __init__(self) -> None:
        self.gravity = 9.8
        self.best = 0.0

    def on_iteration(self, run: Any) -> None:
        mean = run.metrics["episode_return_mean"] or 0.0
        if mean > self.best:
            self.best = mean
            self.gravity *= 1.05
            run.set_env(gravity=self.gravity)
        run.log("gravity", self.gravity)

    def state_dict(self) -> dict[str, float]:
        return {"gravity": self.gravity, "best": self.best}

    def load_state_dict(self, state: dict[str, float]) -> None:
        vars(self).update(state)
