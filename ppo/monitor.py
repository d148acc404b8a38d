"""Compute an iteration's metrics, and call the callbacks."""

import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from ppo.algorithm.rollout import Batch, Metrics, Rollout
from ppo.callbacks.base import Callback, Run
from ppo.callbacks.builtin import RegularCheckpoints, RegularEvaluations
from ppo.callbacks.statistics import MAX_METRICS, EpisodeStatistics
from ppo.components import Components, Reports
from ppo.errors import (
    CallbackError,
    CheckpointError,
    ConfigError,
    PPOError,
    SaveFailed,
    describe,
)
from ppo.extensions import functions_of, names_of
from ppo.guard import OnProgress, ignore
from ppo.run.checkpoint import LAST, copy_state, describe_kinds, unsaveable
from ppo.run.folder import RunFolder
from ppo.run.loggers.logger import Histograms
from ppo.run.reader import SUMMARY, Row
from ppo.run.resume import try_attributes
from ppo.run.summary import RunSummary
from ppo.system.clock import Clock
from ppo.system.files import write_json
from ppo.system.signals import RAISED_BY_SIGNALS
from ppo.system.state_dict import State, add_prefix, select_prefix

MANY_EPISODES = 100  # of an environment's, while another is in its first


class Learned(NamedTuple):
    """What came of an iteration in this process."""

    rollout: Rollout
    batch: Batch
    metrics: Metrics
    reports: Reports


@dataclass(frozen=True)
class Decision:
    """What follows from an iteration.

    metrics: to log, with histograms if there are some; is_save_due: whether a checkpoint is to be
    saved, is_best: as the best one so far; stop_reason: why this iteration is the last, or ""."""

    metrics: Metrics
    histograms: Histograms | None
    is_save_due: bool
    is_best: bool
    stop_reason: str


class Monitor:
    """Count episodes and faults, make an iteration's metrics, and call the callbacks.

    callbacks: in the order in which they are called, see all_callbacks."""

    def __init__(
        self, parts: Components, folder: RunFolder, callbacks: Sequence[Callback] = ()
    ) -> None:
        self.parts = parts
        self.config = parts.config
        self.episodes = EpisodeStatistics(self.config.num_envs)
        self.run = Run(parts, folder, self.notify, self.episodes)
        self.warned: set[tuple[int, str]] = set()  # of a kind of fault of an environment
        self.doubts: dict[str, str] = {}  # about saved states, by the name of the callback
        self.notes = set(parts.spaces.warnings)  # that have been shown, or will be at the start
        self.callbacks = list(callbacks)

    def notify(self, method: str, *arguments: Any) -> None:
        """Call a method of all callbacks in turn, with the run and further arguments. Raises
        CallbackError for what others than this project raise, CheckpointError if the callback has
        a saved state of other types than a new one."""
        for name, callback in _named(self.callbacks):
            if getattr(type(callback), method) is not getattr(Callback, method):
                with _explained_errors(callback, method, self.doubts.get(name)):
                    getattr(callback, method)(self.run, *arguments)

    def start(self, rows: Sequence[Row]) -> int:
        """Start the callbacks; return the last iteration, the present one if they stop the run.

        rows: metrics of the iterations before a resumed run. Raises as state_dict does."""
        self.run.rows = rows
        for warning in self.parts.spaces.warnings:
            self.run.folder.event("environment", warning)
        self.notify("on_start")
        try_attributes(self.parts)  # which a callback may have changed
        self.state_dict()  # raises if what on_start has changed cannot be saved
        return self.parts.iteration if self.run.stop_reason else self.config.iterations

    def note_checkpoint(self) -> None:
        """Tell the callbacks that a checkpoint is being saved."""
        self.notify("on_checkpoint")

    def after_update(self, learned: Learned, clock: Clock) -> Decision:
        """Compute all metrics of an iteration from those of its update, and those of the
        environment once an episode has reported them; then call on_episode and on_iteration."""
        parts = self.parts
        run = self.run
        rollout, batch, metrics, reports = learned
        self._count(reports)
        note = f"environment {self.config.env_name}: {rollout.info.note}"
        if rollout.info.note and note not in self.notes:
            self.notes.add(note)
            run.folder.event("environment", note)
        if num_skipped := metrics["skipped_steps"]:
            run.folder.event(
                "step_skipped",
                f"{num_skipped} gradient steps of iteration {parts.iteration} were skipped: their "
                "loss or gradient was not finite",
                num_skipped,
            )
        run.rollout = rollout
        run.batch = batch
        run.metrics = {
            "iteration": parts.iteration,
            "step": parts.step,
            "seconds": clock.elapsed,
            "steps_per_second": self.config.rollout_size / sum(clock.phases.values()),
            "episodes": self.episodes.count,
            **self.episodes.means(),
            **metrics,
            **{f"seconds_{phase}": seconds for phase, seconds in clock.phases.items()},
            **self._fault_counts(),
        }
        # The environment may begin to report what a callback has logged before.
        run.measured = frozenset(name for name in run.metrics if not name.startswith("env/"))
        run.histograms = None
        run.is_best = False
        run.is_save_due = False
        for episode in reports.episodes:
            self.notify("on_episode", episode)
        self.notify("on_iteration")
        run.metrics |= self._fault_counts()  # with those of callbacks, such as evaluations
        return Decision(run.metrics, run.histograms, run.is_save_due, run.is_best, run.stop_reason)

    def finish(self, clock: Clock, on_progress: OnProgress = ignore) -> RunSummary:
        """Evaluate the final policy, write summary.json and call on_end; return the summary. Raises
        SaveFailed."""
        seconds = clock.elapsed
        folder = self.run.folder.path
        summary = RunSummary(
            env_name=self.config.env_name,
            seed=self.config.seed,
            steps=self.parts.step,
            seconds=round(seconds, 3),
            steps_per_second=round(self.parts.step / seconds, 1),
            stopped=self.run.stop_reason or None,
            episodes=self.episodes.count,
            mean_return=self.episodes.means()["episode_return_mean"],
            evaluation=self.run.evaluate(on_progress=on_progress),
            checkpoint=str(folder / "checkpoints" / LAST),
        )
        try:
            write_json(folder / SUMMARY, summary.content())
        except OSError as error:
            raise SaveFailed(
                f"{folder / SUMMARY} cannot be written ({error.strerror}): checkpoints are not "
                "affected"
            ) from error
        self.notify("on_end")
        return summary

    def note_lost_episodes(self, env_ids: list[int]) -> None:
        """Warn in which environments of a resumed run the open episode could not be restored."""
        if env_ids:
            self.episodes.waiting |= {*env_ids}
            message = (
                f"resume is not exact: environments {env_ids} did not repeat their open episode, a "
                "new one began there"
            )
            self.run.folder.event("episodes_lost", message, len(env_ids))

    def state_dict(self) -> State:
        """Return what the metrics and the callbacks of a resumed run depend on.

        Raises ConfigError in a run that has just started if a callback's state cannot be saved;
        later, the checkpoints fail, and say why."""
        state = self.episodes.state_dict()
        for name, callback in _named(self.callbacks):
            with _explained_errors(callback, "state_dict"):
                state |= add_prefix(name, callback.state_dict())
        if not self.run.metrics:
            _check_saveable(state)
        return state

    def load_state_dict(self, state: State) -> None:
        """Load a state dict; other names in it are ignored. Raises ValueError if
        a callback refuses its own.

        It is asked for values of other types than those of a new callback, too, as they may change
        in a run; they are kept in mind for an error that they cause later."""
        self.episodes.load_state_dict(state)
        for name, callback in _named(self.callbacks):
            if own := select_prefix(name, state):
                with suppress(Exception):  # it may need its on_start before
                    self.doubts[name] = "; ".join(describe_kinds(own, callback.state_dict()))
                try:
                    callback.load_state_dict(own)
                except RAISED_BY_SIGNALS:
                    raise
                except BaseException as error:
                    reason = self.doubts.get(name) or describe(error)
                    raise ValueError(f"{name} cannot be loaded: {reason}") from error

    def _count(self, reports: Reports) -> None:
        """Count episodes, and faults, of which the user is warned once for each environment."""
        had_too_many = self.episodes.has_too_many
        self.episodes.waiting -= {*reports.absent}
        for episode in reports.episodes:
            self.episodes.add(episode)
        self._warn_of_long_episodes()
        if self.episodes.has_too_many and not had_too_many:
            self.run.folder.event(
                "env_metrics",
                f"the environment reports more than {MAX_METRICS} numbers by different names; "
                "further names are ignored",
            )
        for env_id, kind, count in reports.faults:
            if (env_id, kind) in self.warned:
                self.parts.faults[kind] += count
            else:
                self.warned.add((env_id, kind))
                what = f"environment {env_id} {names_of('faults')[kind]}"
                # This counts it, too.
                self.run.folder.event(kind, f"{what}, and more are only counted", count)

    def _warn_of_long_episodes(self) -> None:
        """Say once why means have no value, where some environments take long to end an episode."""
        waiting = sorted(self.episodes.waiting)
        is_long = self.episodes.count >= MANY_EPISODES * self.config.num_envs
        if waiting and is_long and "waiting" not in self.notes:
            self.notes.add("waiting")
            self.run.folder.event(
                "environment",
                f"environments {waiting[:5]} are still in their first episode, while others have "
                f"ended {self.episodes.count:,}: means of episodes have no value until all have "
                "ended one, for which --max_episode_steps provides",
            )

    def _fault_counts(self) -> Metrics:
        return {f"faults/{name}": count for name, count in self.parts.faults.items()}


def all_callbacks(parts: Components, own: Sequence[Callback] = ()) -> list[Callback]:
    """Return the callbacks of a run in the order in which they are called: the trainer's, those of
    extensions, and the user's own before the late ones of extensions. Raises as extensions do."""
    added = [one for make in functions_of("callbacks") for one in make(parts)]
    early = [one for one in added if not one.is_late]
    late = [one for one in added if one.is_late]
    return [RegularCheckpoints(), RegularEvaluations(), *early, *own, *late]


def _named(callbacks: Sequence[Callback]) -> Iterator[tuple[str, Callback]]:
    """Yield (name, callback); names do not change if callbacks of other classes are added."""
    counts = Counter[str]()
    for callback in callbacks:
        kind = type(callback).__name__
        yield f"callbacks.{kind}.{counts[kind]}", callback
        counts[kind] += 1


def _check_saveable(state: State) -> None:
    """Raise ConfigError if a callback's state cannot be saved."""
    if problem := unsaveable(copy_state(state)):
        raise ConfigError(
            f"{problem}: let state_dict() return tensors, arrays and JSON values with texts as keys"
        )


@contextmanager
def _explained_errors(callback: Callback, method: str, doubt: str | None = None) -> Iterator[None]:
    """Turn what a callback raises into a CallbackError that names it; pass on PPOError. doubt:
    about its saved state, which then is to blame, by a CheckpointError."""
    try:
        yield
    except (PPOError, *RAISED_BY_SIGNALS):
        raise
    except BaseException as error:
        name = type(callback).__name__
        raised = f"callback {name} raised {type(error).__name__} in {method}: {error}"
        if doubt:
            raise CheckpointError(
                f"callback {name} failed in {method} ({type(error).__name__}), and its state in "
                f"the checkpoint that was resumed is malformed ({doubt}): give another"
            ) from error
        raise CallbackError(raised, traceback.format_exc()) from error
