"""End a run early: --stop_when, --patience and --max_time."""

import operator
import re
from collections import deque
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

from ppo.callbacks import Callback
from ppo.checkpoint import State
from ppo.config import flag
from ppo.envs.episodes import Episode
from ppo.errors import ConfigError, suggest
from ppo.run import Run

CONDITION = re.compile(r"^([^<>=]+?)\s*(<=?|>=?)\s*([-+.\deE]+)\Z")
COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
SOLVED = "solved"  # in place of a metric
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
TRIAL, PROOF = 10, 100  # episodes


@dataclass
class Stopping(Callback):
    """Raises ConfigError for values that cannot be read."""

    stop_when: str | None = None
    """Condition that ends the run: a column of metrics.csv, <, <=, > or >=, and a number; episode
    means count after 100 episodes. solved>=NUMBER: the mean return of 100 episodes with
    deterministic actions; solved: the same, with the environment's reward_threshold."""
    patience: int | None = flag(None, 1)
    """End the run after this many iterations without a new best mean return (of evaluations with
    --eval_every, else of training)."""
    max_time: str | None = None
    """Training time after which the run ends, such as 90s, 30m, 2h or 1d."""

    def __post_init__(self) -> None:
        self.returns: deque[float] = deque(maxlen=PROOF)  # of the last episodes of training
        self.best = -float("inf")
        self.best_at = -1  # the iteration of the highest mean return
        self.next_try = TRIAL  # number of episodes after which solved is asked for again
        self.flags = [self.stop_when, self.patience, self.max_time]
        self.ended: list[Any] = []  # why the run has ended, and the flags that it had then
        self.metric = ""
        self.seconds = float("inf")
        if self.stop_when and self.stop_when != SOLVED:
            self._read_condition(self.stop_when)
        if self.max_time:
            self.seconds = seconds_of(self.max_time)

    def on_start(self, run: Run) -> None:
        if self.stop_when == SOLVED:
            threshold = run.spaces.make_env.spec.reward_threshold
            if threshold is None:
                raise ConfigError(
                    f"--stop_when={SOLVED}: {run.config.env_name} has no reward_threshold: give "
                    f"{SOLVED}>=NUMBER"
                )
            self._read_condition(f"{SOLVED}>={threshold}")
        if self.best_at < 0:  # this is new, also in a resumed run
            self.best_at = run.iteration
        if self.ended[1:] == self.flags:  # the same command does not train further
            run.stop(self.ended[0])

    def on_episode(self, run: Run, episode: Episode) -> None:
        self.returns.append(episode.episode_return)

    def on_iteration(self, run: Run) -> None:
        if self.metric == SOLVED:
            if self._is_solved(run):
                run.stop(f"{SOLVED}>={self.limit:g}")
        elif self.metric and self._holds(run):
            run.stop(str(self.stop_when))
        if run.seconds >= self.seconds:
            run.stop(f"--max_time={self.max_time}")
        name = "evaluation_return_mean" if run.config.eval_every else "episode_return_mean"
        mean = run.metrics.get(name)
        without = run.iteration - self.best_at
        if mean is not None and mean > self.best:
            self.best = mean
            self.best_at = run.iteration
        elif mean is not None and self.patience and without >= self.patience:
            run.stop(f"no new highest {name} in {self.patience} iterations")
        if run.stop_reason:
            self.ended = [run.stop_reason, *self.flags]

    def state_dict(self) -> State:
        return {
            "returns": [*self.returns],
            "best": self.best,
            "best_at": self.best_at,
            "next_try": self.next_try,
            "ended": self.ended,
        }

    def load_state_dict(self, state: State) -> None:
        self.returns.extend(state["returns"])
        self.best = state["best"]
        self.best_at = state["best_at"]
        self.next_try = state["next_try"]
        self.ended = state["ended"]

    def _holds(self, run: Run) -> bool:
        is_own = self.metric.startswith("env/")
        if self.metric not in run.metrics and not is_own:
            hint = suggest(self.metric, run.metrics)
            raise ConfigError(f"--stop_when={self.stop_when}: there is no such metric{hint}")
        value = run.metrics.get(self.metric)
        is_of_episodes = is_own or self.metric.startswith("episode_")
        is_early = is_of_episodes and run.episodes.count < PROOF
        if value is None or is_early:
            return False
        return self.compare(value, self.limit)

    def _is_solved(self, run: Run) -> bool:
        """Play a few episodes when those of training come near, and if they suffice, all."""
        if run.episodes.count < self.next_try or not self.returns:
            return False
        high = fmean(self.returns) + pstdev(self.returns)
        if high < self.limit:
            return False
        for episodes in (TRIAL, PROOF):
            pause = max(3 * TRIAL, episodes)
            self.next_try = run.episodes.count + pause
            mean = run.evaluate(episodes).mean
            if mean is None or not self.compare(mean, self.limit):
                return False
        return True

    def _read_condition(self, text: str) -> None:
        """Read a metric, how it is compared, and the limit that it is compared with."""
        try:
            self.metric, sign, number = CONDITION.findall(text)[0]
            self.compare = COMPARISONS[sign]
            self.limit = float(number)
            if self.metric == SOLVED and sign.startswith("<"):
                raise ValueError
        except (IndexError, ValueError):
            raise ConfigError(
                f"--stop_when={text}: give METRIC>NUMBER, solved>=NUMBER or solved"
            ) from None


def seconds_of(text: str) -> float:
    """Read the value of --max_time."""
    if not re.fullmatch(r"\d+(\.\d+)?[smhd]", text):
        raise ConfigError(f"--max_time={text}: give a number and a unit, such as 90s, 2h or 1d")
    number, unit = text[:-1], text[-1]
    return float(number) * UNITS[unit]
