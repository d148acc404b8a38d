"""Watch and steer a run: the base of callbacks, of the trainer's own and of the user's."""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ppo.callbacks.statistics import EpisodeStatistics
from ppo.config.config import Config
from ppo.config.flags import check_values
from ppo.envs.errors import EnvironmentUnavailable, WorkerError
from ppo.errors import ConfigError
from ppo.guard import OnProgress, guard, ignore
from ppo.run.summary import Evaluation
from ppo.system.files import parse_json
from ppo.system.imports import import_class, make_named
from ppo.system.state_dict import State

if TYPE_CHECKING:
    from ppo.components import Components
    from ppo.envs.worker import Episode
    from ppo.policy.policy import Policy
    from ppo.run.folder import RunFolder
    from ppo.run.loggers.logger import Histograms


class Callback:
    """Base class of callbacks: override what you need.

    run: the one that is watched. All methods are called in the trainer's process (the first of
    several), between two rollouts. An exception in one ends the run; its state after the last
    complete iteration is saved. About a second after a signal, whatever still runs is cut off.

    is_late: whether it is called after the user's own callbacks, if it is an extension's.
    """

    is_late = False

    def on_start(self, run: "Run") -> None:
        """Prepare for the first iteration. Called after load_state_dict if the run is resumed."""

    def on_iteration(self, run: "Run") -> None:
        """React to a finished iteration: read run.metrics, run.rollout and run.batch."""

    def on_episode(self, run: "Run", episode: "Episode") -> None:
        """React to an episode that ended in this iteration; before on_iteration. It may be one of a
        part of the rollout that was lost with its worker and collected again."""

    def on_evaluation(self, run: "Run", result: Evaluation) -> None:
        """React to an evaluation, during training or at its end."""

    def on_checkpoint(self, run: "Run") -> None:
        """React to a checkpoint of the last iteration, which a thread is now writing. What changes
        here is saved with the next one."""

    def on_end(self, run: "Run") -> None:
        """Finish after the final evaluation; not called if a signal or an error ended the run."""

    def state_dict(self) -> State:
        """Return the state to save in checkpoints: tensors, arrays and JSON values, by name. Other
        values are refused at the start; keys of dicts are saved as texts, tuples as lists."""
        return {}

    def load_state_dict(self, state: State) -> None:
        """Restore what state_dict() returned when the checkpoint was saved, arrays as tensors."""


@dataclass
class Run:
    """A run as callbacks see it.

    notify: calls a method of all callbacks; episodes: their statistics; rows: the metrics
    before a resumed run; metrics, rollout, batch: of the last iteration; measured: the names of
    metrics that are the trainer's own; is_best: whether a callback has found the last iteration to
    be the best so far.
    """

    parts: "Components"
    folder: "RunFolder"
    notify: Callable[..., None]
    episodes: EpisodeStatistics
    rows: Sequence[State] = ()
    metrics: State = field(default_factory=dict)
    measured: frozenset[str] = frozenset()
    rollout: Any = None
    batch: Any = None
    histograms: "Histograms | None" = None  # for loggers, if a callback has made them
    is_best: bool = False
    is_save_due: bool = False
    stop_reason: str = ""
    last_evaluation: tuple[Any, Any] = (None, None)  # of what, and its result

    @property
    def config(self) -> Config:
        """The settings of the run, resolved."""
        return self.parts.config

    @property
    def returns(self) -> list[float]:
        """The returns of the last episodes of each environment, which are 100 or more."""
        return self.episodes.returns

    @property
    def iteration(self) -> int:
        """Number of iterations so far, including those before a resume."""
        return self.parts.iteration

    @property
    def step(self) -> int:
        """Number of environment steps so far, of all processes."""
        return self.parts.step

    def is_due(self, every: int | None) -> bool:
        """Return whether this iteration is a multiple of every; False for None."""
        return bool(every and self.iteration % every == 0)

    def policy(self) -> "Policy":
        """Return the current policy, which acts and evaluates."""
        return self.parts.policy()

    def log(self, name: str, value: float | None) -> None:
        """Add a metric to this iteration. None: no value. Raises ValueError if the value is
        not finite, the name has characters other than letters, digits and _ / . -, or the trainer
        measures a metric of this name, such as step."""
        if not re.fullmatch(r"[\w/.-]+", name) or not math.isfinite(value or 0):
            raise ValueError(f"the metric {name} is {value}, not a finite number with a plain name")
        if name in self.measured:
            raise ValueError(f"the metric {name} is the trainer's own: give another name")
        self.metrics[name] = None if value is None else float(value)

    def stop(self, reason: str) -> None:
        """End the run after this iteration, as if it were the last one. The first reason counts."""
        self.stop_reason = self.stop_reason or reason

    def save(self) -> None:
        """Save a checkpoint of this iteration."""
        self.is_save_due = True

    def set_env(self, **attributes: Any) -> None:
        """Change the training task: from its next episode on, each environment gets attributes.

        They are passed to the environment's set_training(**attributes), else set by name on it, and
        are kept in checkpoints; evaluations get them, too. Raises TypeError or ValueError unless
        JSON can hold them.
        """
        self.parts.env_attributes.update(parse_json(json.dumps(attributes, allow_nan=False)))

    def change(self, **settings: Any) -> None:
        """Give flags that may change during a run, such as learning_rate, other values from the
        next iteration on. Raises ConfigError for another flag, or an unsuitable value."""
        known = Config.names(live=True)
        if fixed := settings.keys() - {*known}:
            raise ConfigError(
                f"{min(fixed)} cannot change during a run: give some of {', '.join(known)}"
            )
        self.parts.changes |= check_values(Config, settings)

    def evaluate(self, episodes: int | None = None, on_progress: OnProgress = ignore) -> Evaluation:
        """Evaluate the present policy by episodes, by default --eval_episodes; no weight, statistic
        or random stream of the run changes. If the environment fails, that is noted, and there are
        no episodes."""
        policy = self.policy()
        if episodes is None:
            episodes = self.config.eval_episodes
        # Evaluated once only: a callback's may be the final evaluation, too.
        state = (self.iteration, episodes, policy.env_attributes, policy.weights.tobytes())
        try:
            if not episodes:  # no environment, and so no process
                self.last_evaluation = (state, policy.evaluate(0))
            elif self.last_evaluation[0] != state:
                found = guard().call(
                    "the evaluation",
                    policy.config,
                    policy.evaluate,
                    episodes,
                    num_envs=self.config.num_envs,
                    max_steps=self.config.eval_max_steps,
                    on_progress=on_progress,
                )
                self.last_evaluation = (state, found)
            result = self.last_evaluation[1]
        except (WorkerError, EnvironmentUnavailable) as error:
            self.folder.event("evaluation_failed", str(error), traceback="".join(error.args[1:]))
            result = policy.evaluate(0)
        self.notify("on_evaluation", result)
        return result


def named_callbacks(config: Config) -> list[Callback]:
    """Make the callbacks of --callback. Raises ConfigError if one cannot be made."""
    return [
        make_named("callback", path, import_class("callback", path, Callback))
        for path in config.callback
    ]
