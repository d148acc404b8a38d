"""Callbacks that keep the best state of a run, and that end it before its last step."""

import operator
import re
from statistics import fmean, pstdev

from ppo.callbacks.base import Callback
from ppo.config.config import Config
from ppo.config.run_flags import CONDITION, seconds_of
from ppo.errors import ConfigError, suggest
from ppo.system.state_dict import State

WINDOW = 100  # episodes that running means are taken over
EVALUATION = "evaluation_return_mean"
SOLVED = "solved"  # in place of a metric
PROOF = 100  # episodes of the evaluation that proves an environment to be solved
FEW = 10  # episodes of the evaluation before that, which costs less where it fails
COMPARISONS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


def make_stopping(config: Config, reward_threshold: float | None) -> list[Callback]:
    """Make the callbacks that flags ask for. reward_threshold: the environment's own."""
    found: list[Callback] = [KeepBest()]
    condition = config.stop_when
    if condition == SOLVED:
        condition = f"{SOLVED}>={reward_threshold}"
    if condition:
        found.append(StopWhen("stop_when", condition))
    if config.max_time:
        found.append(StopWhen("max_time", f"seconds>={seconds_of(config.max_time)}"))
    return found


class KeepBest(Callback):
    """Save a checkpoint whenever a metric is greater than ever, and end a run in which it has not
    become greater for --patience iterations."""

    best: float | None = None
    best_iteration = 0
    name = ""  # of the metric

    def on_start(self, run) -> None:
        name = run.config.best_by or (run.config.eval_every and EVALUATION) or ""
        if self.name not in ("", name):  # the best of another metric
            self.best = None
        self.name = name
        patience = run.config.patience
        if self.best is not None and patience and run.iteration - self.best_iteration >= patience:
            run.stop(f"{name} has not risen above {self.best:.4g} for {patience} iterations")

    def on_iteration(self, run) -> None:
        if not self.name:
            return
        value = read_metric(run, "best_by", self.name)
        if value is not None and (self.best is None or value > self.best):
            self.best = value
            self.best_iteration = run.iteration
            run.is_best = True
            run.save()
        self.on_start(run)

    def state_dict(self) -> State:
        return {"best": self.best, "best_iteration": self.best_iteration, "name": self.name}

    def load_state_dict(self, state: State) -> None:
        vars(self).update(state)


class StopWhen(Callback):
    """End the run when a metric passes a limit, as in "env/success_rate>0.95".

    In place of a metric, "solved" is the mean return of 100 episodes without exploration. They are
    played only where they may succeed: if the mean return of the last 100 episodes of training,
    plus its standard deviation, passes the limit, and then that of the first 10 of them. After a
    failure at least as many episodes of training come first, three times as many after that of 10,
    unless the iteration is the last one.
    """

    next_try = FEW  # after so many episodes
    has_ended = ""  # the condition that has ended the run

    def __init__(self, flag: str, condition: str) -> None:
        self.flag = flag
        self.condition = condition
        self.name, comparison, limit = re.findall(CONDITION, condition)[0]
        self.compare = COMPARISONS[comparison]
        self.limit = float(limit)

    def on_iteration(self, run) -> None:
        is_metric = self.name != SOLVED
        value = read_metric(run, self.flag, self.name) if is_metric else self._prove(run)
        if self._holds(value):
            self.has_ended = self.condition
            run.stop(f"{self.condition}: it is {value:.4g}")

    def on_start(self, run) -> None:
        if self.has_ended == self.condition:
            run.stop(f"{self.condition}, before it was resumed")

    def state_dict(self) -> State:
        return {"next_try": self.next_try, "has_ended": self.has_ended}

    def load_state_dict(self, state: State) -> None:
        vars(self).update(state)

    def _prove(self, run) -> float | None:
        """Return the mean return of an evaluation; None if it is too early for one, or hopeless."""
        episodes = run.metrics["episodes"]
        is_early = episodes < self.next_try and run.iteration < run.config.iterations
        if is_early or not run.returns:
            return None
        if not self._holds(fmean(run.returns) + pstdev(run.returns)):
            return None
        self.next_try = episodes + 3 * FEW
        if not self._holds(run.evaluate(FEW)["mean"]):
            return None
        self.next_try = episodes + PROOF
        return run.evaluate(PROOF)["mean"]

    def _holds(self, value: float | None) -> bool:
        return value is not None and self.compare(value, self.limit)


def read_metric(run, flag: str, name: str) -> float | None:
    """Return a metric of the last iteration; None if it has no value, or if it is a mean over
    episodes of which there are fewer than 100 so far. Raises ConfigError, naming
    the flag, if there is no such metric."""
    is_mean = name.startswith(("env/", "episode_"))
    has_window = run.metrics["episodes"] >= WINDOW
    if name not in run.metrics and (has_window or "/" not in name):
        hint = suggest(name, run.metrics, f"give one of {', '.join(run.metrics)}")
        raise ConfigError(f"--{flag}: there is no metric {name} in this run: {hint}")
    if is_mean and not has_window:
        return None
    return run.metrics.get(name)
