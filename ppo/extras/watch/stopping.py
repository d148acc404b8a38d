"""Callbacks that keep the best state of a run, and that end it before its last step."""

import operator
import re
from statistics import fmean, pstdev

from ppo.callbacks.base import Callback, Run
from ppo.callbacks.builtin import EVALUATION
from ppo.callbacks.statistics import RECENT
from ppo.config.config import Config
from ppo.config.flags import seconds_of
from ppo.errors import ConfigError, suggest
from ppo.extras.watch.flags import CONDITION, StoppingFlags
from ppo.run.reader import misfit
from ppo.system.state_dict import State

SOLVED = "solved"  # in place of a metric
EVAL_EPISODES = 100  # of the evaluation that shows an environment to be solved
SHORT_EVAL_EPISODES = 10  # of the evaluation before that, which costs less where it fails
COMPARISONS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


def make_stopping(config: Config, reward_threshold: float | None) -> list[Callback]:
    """Make the callbacks that flags ask for. reward_threshold: the environment's own. Raises
    ConfigError if that is asked for, and there is none."""
    flags = StoppingFlags.of(config)
    found: list[Callback] = [KeepBest()]
    condition = flags.stop_when
    if condition == SOLVED and reward_threshold is None:
        raise ConfigError(
            f"--stop_when=solved: {config.env_name} names no reward_threshold, give solved>=NUMBER"
        )
    if condition == SOLVED:
        condition = f"{SOLVED}>={reward_threshold}"
    if condition:
        found.append(StopWhen("stop_when", condition))
    if flags.max_time:
        found.append(StopWhen("max_time", f"seconds>={seconds_of(flags.max_time)}"))
    return found


class KeepBest(Callback):
    """Save a checkpoint whenever a metric is greater than ever, and end a run in which it has not
    become greater for --patience iterations."""

    is_late = True

    def __init__(self) -> None:
        self.best: float | None = None
        self.best_iteration = 0
        self.name = ""  # of the metric

    def on_start(self, run: Run) -> None:
        flags = StoppingFlags.of(run.config)
        name = flags.best_by or (run.config.eval_every and EVALUATION) or ""
        if self.name not in ("", name):  # the best of another metric
            self.best = None
        self.name = name
        self._check_patience(run)

    def on_iteration(self, run: Run) -> None:
        if not self.name:
            return
        value = read_metric(run, "best_by", self.name)
        if value is not None and (self.best is None or value > self.best):
            self.best = value
            self.best_iteration = run.iteration
            run.is_best = True
            run.save()
        self._check_patience(run)

    def _check_patience(self, run: Run) -> None:
        """End the run if the metric has not risen for --patience iterations."""
        patience = StoppingFlags.of(run.config).patience
        if self.best is not None and patience and run.iteration - self.best_iteration >= patience:
            run.stop(f"{self.name} has not risen above {self.best:.4g} for {patience} iterations")

    def state_dict(self) -> State:
        return {"best": self.best, "best_iteration": self.best_iteration, "name": self.name}

    def load_state_dict(self, state: State) -> None:
        form = {"best": (float, None), "best_iteration": int, "name": str}
        if wrong := misfit(state, form):
            raise ValueError(f"its {wrong} is not of its type")
        if state["best_iteration"] < 0:
            raise ValueError("its best_iteration is negative")
        self.best = state["best"]
        self.best_iteration = state["best_iteration"]
        self.name = state["name"]


class StopWhen(Callback):
    """End the run when a metric passes a limit, as in "env/success_rate>0.95".

    In place of a metric, "solved" is the mean return of 100 episodes without exploration. As that
    costs time, they are played in steps:

    - first, the mean return of the last episodes of training, plus their standard deviation, must
      pass the limit;
    - then the mean return of 10 episodes without exploration must pass it;
    - then that of 100 must, which ends the run;
    - after a failure the next attempt waits for as many further episodes of training as it has
      played, 30 if it had played 10; the last iteration does not wait.
    """

    is_late = True

    def __init__(self, flag: str, condition: str) -> None:
        self.flag = flag
        self.condition = condition
        self.ended_by = ""  # the condition that has ended the run
        self.next_try = SHORT_EVAL_EPISODES  # after so many episodes
        self.name, comparison, limit = re.findall(CONDITION, condition)[0]
        self.compare = COMPARISONS[comparison]
        self.limit = float(limit)

    def on_iteration(self, run: Run) -> None:
        if self.name == SOLVED:
            value = self._evaluate_if_promising(run)
        else:
            value = read_metric(run, self.flag, self.name)
        if self._holds(value):
            self.ended_by = self.condition
            reason = f"{self.condition}: it is {value:.4g}"
            if self.name == "seconds":  # in whole iterations
                took = run.metrics["seconds_collecting"] + run.metrics["seconds_learning"]
                reason += f", at the end of an iteration of {took:.3g} s"
            run.stop(reason)

    def on_start(self, run: Run) -> None:
        if self.ended_by == self.condition:
            run.stop(f"{self.condition}, before it was resumed")

    def state_dict(self) -> State:
        return {"next_try": self.next_try, "has_ended": self.ended_by}

    def load_state_dict(self, state: State) -> None:
        if wrong := misfit(state, {"next_try": int, "has_ended": str}):
            raise ValueError(f"its {wrong} is not of its type")
        self.next_try = state["next_try"]
        self.ended_by = state["has_ended"]

    def _evaluate_if_promising(self, run: Run) -> float | None:
        """Return the mean return of an evaluation; None if it is too early for one, or would be in
        vain."""
        episodes = run.metrics["episodes"]
        is_early = episodes < self.next_try and run.iteration < run.config.iterations
        if is_early or run.metrics["episode_return_mean"] is None:
            return None
        if not self._holds(fmean(run.returns) + pstdev(run.returns)):
            return None
        self.next_try = episodes + 3 * SHORT_EVAL_EPISODES
        if not self._holds(run.evaluate(SHORT_EVAL_EPISODES).mean):
            return None
        self.next_try = episodes + EVAL_EPISODES
        return run.evaluate(EVAL_EPISODES).mean

    def _holds(self, value: float | None) -> bool:
        return value is not None and self.compare(value, self.limit)


def read_metric(run: Run, flag: str, name: str) -> float | None:
    """Return a metric of the last iteration; None if it has no value, or if it is a mean over
    episodes of which there are fewer than 100 so far. Raises ConfigError, naming the flag, if there
    is no such metric."""
    is_mean = name.startswith(("env/", "episode_"))
    has_window = run.metrics["episodes"] >= RECENT
    if name not in run.metrics and (has_window or "/" not in name):
        hint = suggest(name, run.metrics, f"give one of {', '.join(run.metrics)}")
        raise ConfigError(f"--{flag}: there is no metric {name} in this run: {hint}")
    if is_mean and not has_window:
        return None
    return run.metrics.get(name)
