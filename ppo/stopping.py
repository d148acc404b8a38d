"""Callbacks that keep the best state of a run, and that end it before its last step."""

import operator
import re

from ppo.callback import Callback
from ppo.config.config import Config
from ppo.config.run_flags import CONDITION, seconds_of
from ppo.errors import ConfigError, suggest
from ppo.system.state_dict import State

WINDOW = 100  # episodes that running means are taken over
EVALUATION = "evaluation_return_mean"
PROOF = 100  # episodes of the evaluation that proves an environment to be solved
COMPARISONS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


def make_stopping(config: Config, reward_threshold: float | None) -> list[Callback]:
    """Make the callbacks that flags ask for. reward_threshold: the environment's own."""
    found: list[Callback] = [KeepBest()]
    if config.stop_when == "solved":
        solved = f"episode_return_mean>={reward_threshold}"
        found.append(StopWhen("stop_when", solved, needs_proof=True))
    elif config.stop_when:
        found.append(StopWhen("stop_when", config.stop_when))
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

    needs_proof: the mean return of an evaluation must pass the limit, too. An evaluation takes
    place at most once every 100 training episodes.
    """

    tried_after = 0  # episodes
    has_ended = ""  # the condition that has ended the run

    def __init__(self, flag: str, condition: str, needs_proof: bool = False) -> None:
        self.flag = flag
        self.condition = condition
        self.name, comparison, limit = re.findall(CONDITION, condition)[0]
        self.compare = COMPARISONS[comparison]
        self.limit = float(limit)
        self.needs_proof = needs_proof

    def on_iteration(self, run) -> None:
        value = read_metric(run, self.flag, self.name)
        episodes = run.metrics["episodes"]
        if self.needs_proof and self._holds(value) and episodes >= self.tried_after + WINDOW:
            self.tried_after = episodes
            value = run.evaluate(PROOF)["mean"]
        elif self.needs_proof:
            return
        if self._holds(value):
            self.has_ended = self.condition
            run.stop(f"{self.condition}: it is {value:.4g}")

    def on_start(self, run) -> None:
        if self.has_ended == self.condition:
            run.stop(f"{self.condition}, before it was resumed")

    def state_dict(self) -> State:
        return {"tried_after": self.tried_after, "has_ended": self.has_ended}

    def load_state_dict(self, state: State) -> None:
        vars(self).update(state)

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
