"""End a run early: --stop_when, --patience and --max_time."""

import re
from collections import deque
from dataclasses import asdict, dataclass
from statistics import fmean, pstdev
from typing import Any

from ppo.callbacks import Callback
from ppo.config import flag
from ppo.envs.episodes import Episode
from ppo.errors import ConfigError, suggest
from ppo.run import Run

CONDITION = re.compile(r"([\w./]+?)\s*(<=?|>=?)\s*([-+.\deE]+)")
SOLVED = "solved"  # in place of a metric
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
TRIAL, PROOF = 10, 100  # episodes


@dataclass
class Stopping(Callback):
    """Raises ConfigError for values that cannot be read."""

    stop_when: str | None = None
    """Condition that ends the run: a column of metrics.csv, <, <=, > or >=, and a number; means of
    episodes count once there are 100. solved>=NUMBER: the mean return of 100 episodes with
    deterministic actions; solved: that of the environment's reward_threshold."""
    patience: int | None = flag(None, 1)
    """Iterations without a new highest mean return after which the run ends: of evaluations with
    --eval_every, else of training."""
    max_time: str | None = None
    """Training time after which the run ends, such as 90s, 30m, 2h or 1d."""

    def __post_init__(self) -> None:
        self.returns: deque[float] = deque(maxlen=PROOF)  # of the last episodes of training
        self.best = -float("inf")
        self.best_at = 0  # the iteration of the highest mean return
        self.next_try = TRIAL  # number of episodes after which solved is asked for again
        self.ended: list[Any] = []  # why the run has ended, and the flags that it had then
        self.metric, self.sign, self.limit = "", "", 0.0
        if self.stop_when and self.stop_when != SOLVED:
            self.metric, self.sign, self.limit = self._condition(self.stop_when)
        self.seconds = self._seconds(self.max_time) if self.max_time else float("inf")

    def on_start(self, run: Run) -> None:
        if self.stop_when == SOLVED:
            threshold = run.spaces.make_env.spec.reward_threshold
            if threshold is None:
                raise ConfigError(
                    f"--stop_when={SOLVED}: {run.config.env_name} has no reward_threshold: give "
                    f"{SOLVED}>=NUMBER"
                )
            self.metric, self.sign, self.limit = SOLVED, ">=", threshold
        if self.ended[1:] == self._flags():  # the same command does not train further
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
        if mean is not None and mean > self.best:
            self.best, self.best_at = mean, run.iteration
        if self.patience and run.iteration - self.best_at >= self.patience:
            run.stop(f"no new highest {name} in {self.patience} iterations")
        if run.stop_reason:
            self.ended = [run.stop_reason, *self._flags()]

    def state_dict(self) -> dict[str, Any]:
        names = ("best", "best_at", "next_try", "ended")
        return {"returns": [*self.returns], **{name: getattr(self, name) for name in names}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.returns.extend(state["returns"])
        self.best, self.best_at = state["best"], state["best_at"]
        self.next_try, self.ended = state["next_try"], state["ended"]

    def _flags(self) -> list[Any]:
        return [*asdict(self).values()]

    def _holds(self, run: Run) -> bool:
        if self.metric not in run.metrics and not self.metric.startswith("env/"):
            hint = suggest(self.metric, run.metrics)
            raise ConfigError(f"--stop_when={self.stop_when}: there is no such metric{hint}")
        value = run.metrics.get(self.metric)
        is_of_episodes = self.metric.startswith(("env/", "episode_"))
        if value is None or (is_of_episodes and run.episodes.count < PROOF):
            return False
        return self._fits(value)

    def _fits(self, value: float) -> bool:
        if value == self.limit:
            return "=" in self.sign
        return value > self.limit if self.sign.startswith(">") else value < self.limit

    def _is_solved(self, run: Run) -> bool:
        """Play a few episodes when those of training come near, and if they suffice, all."""
        if run.episodes.count < self.next_try:
            return False
        if fmean(self.returns) + pstdev(self.returns) < self.limit:
            return False
        for episodes in (TRIAL, PROOF):
            self.next_try = run.episodes.count + max(3 * TRIAL, episodes)
            mean = run.evaluate(episodes).mean
            if mean is None or not self._fits(mean):
                return False
        return True

    def _condition(self, text: str) -> tuple[str, str, float]:
        try:
            name, sign, number = CONDITION.fullmatch(text).groups()  # type: ignore[union-attr]
            if name == SOLVED and sign.startswith("<"):
                raise ValueError
            return name, sign, float(number)
        except (AttributeError, ValueError):
            raise ConfigError(
                f"--stop_when={text}: give METRIC>NUMBER, solved>=NUMBER or solved"
            ) from None

    def _seconds(self, text: str) -> float:
        if not re.fullmatch(r"\d+(\.\d+)?[smhd]", text):
            raise ConfigError(f"--max_time={text}: give a number and a unit, such as 90s, 2h or 1d")
        return float(text[:-1]) * UNITS[text[-1]]
