"""A run: its parts, wired together, and what callbacks see of it and may do."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ppo.callbacks import Callback, overriding
from ppo.checkpoint import copied, save_next, select
from ppo.config import Config, as_json, flag_names, name_of
from ppo.envs.normalize import NormalizeObservation, NormalizeReward
from ppo.envs.observations import NUMBERS
from ppo.envs.pool import WorkerPool
from ppo.envs.seeding import Stream, integer_seed
from ppo.envs.shared_memory import map_arrays
from ppo.envs.worker import carried_tables, table_shapes
from ppo.errors import ConfigError, EnvironmentFailed, SaveFailed, Stopped, reason
from ppo.extras import FLAGS
from ppo.flags import checked, flags_of
from ppo.folder import RunFolder
from ppo.imports import import_named
from ppo.learner import Learner
from ppo.loggers import Logger
from ppo.models import MakeTorchActor, make_actor_of, make_model
from ppo.models.actor_critic import named_tensors, to_vector
from ppo.numpy_learner import NumpyLearner, difference
from ppo.open_episodes import OpenEpisodes
from ppo.policy import Evaluation, Policy
from ppo.process import StopSignals
from ppo.rollout import Batch, Metrics, Rollout
from ppo.settings import Settings
from ppo.state import policy_state, take
from ppo.statistics import EpisodeStatistics

MAX_SECONDS = 600  # without a checkpoint: what a power failure costs where iterations are long
OWN_METRICS = ("iteration", "step", "seconds", "steps_per_second", "episodes")


class Run:
    """A run, as its loop and callbacks see it. config, spaces: its settings and spaces; iteration:
    how many are done; metrics, rollout, batch: of the last one; stop_reason: why it ends early."""

    def __init__(
        self,
        settings: Settings,
        pool: WorkerPool,
        callbacks: Sequence[Callback],
        signals: StopSignals,
    ) -> None:
        self.spaces = settings.spaces
        config = settings.spaces.config
        self.extra_flags = {
            name: as_json(getattr(callback, name))
            for name, path in FLAGS.items()
            for callback in callbacks
            if name_of(type(callback)) == path
        }
        self.given = {**settings.given.to_json(), **self.extra_flags}
        self.callbacks = [*callbacks]
        self.signals = signals
        self.iteration = 0
        self.seconds = 0.0
        self.stop_reason = ""
        self.metrics: Metrics = {}
        self.batch: Batch = {}
        self.env_attributes: dict[str, Any] = {}  # of new episodes, by set_env
        self.state: dict[str, Any] = {}  # of the last whole iteration
        self.best = -math.inf  # mean return of evaluations
        self.last_save = time.perf_counter()
        self.is_save_due = False  # after this iteration
        self.is_best = False
        self.is_saved = False
        self.pool = pool
        torch.manual_seed(integer_seed(config.seed, Stream.MODEL))  # for losses that draw numbers
        self.model = make_model(self.spaces).to(config.device)
        self.make_actor = make_actor_of(self.model, self.spaces)
        self.edited = ""  # in what numpy would differ from torch
        self.learner = self._learner_class()(self.model, self.spaces, self.callbacks)
        weights = to_vector(named_tensors(self.model).values())
        about = (self.model.state_size, self.model.num_shared_features)
        tables = table_shapes(self.spaces, config.num_steps, config.num_envs, *about)
        self.shapes = {**tables, "weights": ((len(weights),), np.float32)}
        self.arrays = map_arrays(pool.file, self.shapes)
        self.rollout = Rollout(self.arrays)
        self.rollout.present[:] = True  # in all steps, unless columns say otherwise
        self.normalize = NormalizeObservation(self.arrays, config)
        self.normalize_reward = NormalizeReward(config.num_envs, config.gamma)
        self.episodes = EpisodeStatistics(config.num_envs)
        self.open_episodes = OpenEpisodes(config.num_envs)
        self.publish()

    def _learner_class(self) -> Any:
        """Return the class that learns, and have torch act, too, if numpy's code differs."""
        kind: Any = self.config.learner
        if kind != "auto":
            return import_named(kind, "learner", Learner)
        if not NumpyLearner.supports(self.model, self.config, self.callbacks):
            return Learner
        self.edited = difference(self.model, self.spaces)
        if not self.edited:
            return NumpyLearner
        self.make_actor = MakeTorchActor(self.spaces)
        return Learner

    def start(self, folder: RunFolder) -> None:
        """Start workers and callbacks, note what a resumed run changes, take the first state."""
        self.folder = folder
        self.note = folder.note  # tell the user a sentence, and keep it in notes.txt
        if what := self.edited:
            self.note(f"using torch: its code was edited, and numpy differs in {what}")
        make_actor = self.make_actor
        if self.config.inference == "learner" and self.config.device != "cpu":
            make_actor = MakeTorchActor(self.spaces, self.config.device)
        self.pool.configure(self.spaces, self.shapes, self.arrays, make_actor, self.note)
        saved = self.state.get("config", {})
        expected = {*flag_names("fixed"), "preset", "resume", "total_steps"}
        changes = [
            f"{name}={value} (was {saved[name]})"
            for name, value in self.given.items()
            if name not in expected and value != saved.get(name, value)
        ]
        if changes:
            self.note(f"{folder.shown}: from step {self.step:,} on, {', '.join(changes)}")
        kinds = {type(callback).__name__ for callback in self.callbacks}
        saved_kinds = {name.partition(".")[0] for name in select("callbacks", self.state)}
        for kind in saved_kinds - kinds:
            self.note(
                f"warning: the saved state of callback {kind} is dropped, as it is not given again"
            )
        if self.iteration:
            self._restore_episodes()
        self.notify("on_start")
        self.iteration_began = time.perf_counter()
        self.state = take(self)

    def collect(self) -> Rollout:
        """Have workers collect the next rollout, by the weights that were published."""
        self.rollout_began = time.perf_counter()
        report = self.pool.collect(self.iteration + 1, self.env_attributes)
        self.rollout = Rollout(self.arrays, report)
        self.rollout_ended = time.perf_counter()
        self.iteration += 1
        self.metrics = {}
        self.is_save_due = self.is_best = False
        self.normalize_reward.restart(report.started)
        self.open_episodes.update(self.rollout, self.env_attributes)
        return self.rollout

    def make_batch(self, rollout: Rollout) -> Batch:
        """Normalize a rollout, and evaluate it under the weights that collected it. Statistics of
        rewards include this rollout, those of observations do not."""
        rewards = rollout.rewards
        if self.config.clip_rewards:
            rewards = np.sign(rewards)
        elif self.config.normalize_rewards:
            rewards = self.normalize_reward.update_and_scale(rewards, rollout.dones, rollout.acting)
        self.batch = self.learner.make_batch(rollout, self.normalize, rewards)
        self.notify("on_batch", self.batch)
        return self.batch

    def update(self, batch: Batch) -> Metrics:
        """Learn from a batch, and publish the new weights and statistics."""
        if self.normalize.enabled:
            numbers = self.rollout.tables[NUMBERS][:-1]
            acting = self.rollout.acting
            self.normalize.update(numbers if acting is None else numbers[acting])
        metrics = self.learner.update(batch, self.iteration, self.signals.urgent)
        self.publish()
        return metrics

    def end_iteration(self, metrics: Metrics) -> None:
        """Let callbacks log, evaluate, save and stop; take the state, and save it if it is due."""
        for episode in self.rollout.report.episodes:
            self.episodes.add(episode)
        if name := min({*OWN_METRICS} & metrics.keys(), default=""):
            raise ConfigError(
                f"the loss returns a metric named {name}, which is reserved: rename it"
            )
        now = time.perf_counter()
        self.seconds += now - self.iteration_began
        self.iteration_began = now
        self.metrics = {
            "iteration": self.iteration,
            "step": self.step,
            "seconds": self.seconds,
            "steps_per_second": self.config.rollout_size / (now - self.rollout_began),
            "episodes": self.episodes.count,
            **self.episodes.means(),
            **metrics,
            "seconds_collecting": self.rollout_ended - self.rollout_began,
            "seconds_learning": now - self.rollout_ended,
            **self.metrics,  # logged by callbacks
        }
        if metrics["skipped_steps"]:
            self.note(
                f"warning: {metrics['skipped_steps']} gradient steps of iteration {self.iteration} "
                "were skipped: their loss or gradient was not finite"
            )
        self.is_saved = False
        for episode in self.rollout.report.episodes:
            self.notify("on_episode", episode)
        if self.config.eval_every:
            mean = self.evaluate().mean if self.is_due(self.config.eval_every) else None
            self.log("evaluation_return_mean", mean)
            if mean is not None and mean > self.best:
                self.best = mean
                self.save(is_best=True)
        if self.is_due(self.config.checkpoint_every) or now - self.last_save >= MAX_SECONDS:
            self.save()
        self.notify("on_iteration")
        self.state = take(self)
        if self.is_save_due and (failure := self.save_state()):
            self.note(f"warning: {failure}")

    @property
    def config(self) -> Config:
        """The settings, with "auto" resolved; see ppo.settings.Settings."""
        return self.spaces.config

    @property
    def step(self) -> int:
        """Number of environment steps so far."""
        return self.iteration * self.config.rollout_size

    @property
    def is_over(self) -> bool:
        """Whether all steps are done, or something has stopped the run."""
        return self.iteration >= self.config.iterations or bool(self.stop_reason)

    def is_due(self, every: int | None) -> bool:
        """Return whether this iteration is a multiple of every; False for None."""
        return bool(every and self.iteration % every == 0)

    def log(self, name: str, value: float | None) -> None:
        """Add a metric to this iteration, or None. Raises ValueError if it is not finite or has a
        name of the trainer's own."""
        if not math.isfinite(value or 0) or name in OWN_METRICS:
            raise ValueError(f"the metric {name}={value} is not finite, or has a reserved name")
        self.metrics[name] = None if value is None else float(value)

    def stop(self, why: str) -> None:
        """End the run after this iteration, as if it were the last one. The first reason counts."""
        self.stop_reason = self.stop_reason or why

    def save(self, *, is_best: bool = False) -> None:
        """Save a checkpoint of this iteration, also as the best one."""
        self.is_save_due = True
        self.is_best |= is_best

    def set_env(self, **attributes: Any) -> None:
        """Give environments attributes (JSON values) from their next episode on, by their method
        set_training, or else by name."""
        self.env_attributes = {**self.env_attributes, **attributes}

    def change(self, **flags: Any) -> None:
        """Give flags other values from the next iteration on. Raises ConfigError for flags that
        cannot change during a run."""
        live = flag_names("live")
        values = checked(flags, flags_of(Config))
        if fixed := values.keys() - {*live}:
            raise ConfigError(
                f"{min(fixed)} cannot change during a run; only these can: {', '.join(live)}"
            )
        self.spaces = self.spaces.with_config(replace(self.config, **values))
        self.given |= as_json(values)
        self.learner.change(self.config)

    def policy(self) -> Policy:
        """Return the present policy, with copies of weights and statistics."""
        return Policy(self.spaces.of_evaluations(), copied(policy_state(self)), self.make_actor)

    def evaluate(self, episodes: int | None = None) -> Evaluation:
        """Evaluate the present policy, by default for --eval_episodes. There are no episodes if the
        environment fails. Raises Stopped after a signal."""
        is_taken = self.state.get("iteration") == self.iteration
        should_stop = self.signals.any if self.is_over and is_taken else self.signals.urgent
        try:
            result = self.policy().evaluate(
                self.config.eval_episodes if episodes is None else episodes,
                num_envs=self.config.num_envs,
                should_stop=should_stop,
            )
        except EnvironmentFailed as error:
            self.note(f"warning: an evaluation failed; {error.args[0]}", *error.args[1:])
            result = Evaluation()
        if should_stop():
            raise Stopped
        self.notify("on_evaluation", result)
        return result

    def finish(self) -> Evaluation:
        """Evaluate the last state, which may be the best one. Raises Stopped."""
        result = self.evaluate()
        if self.config.eval_every and result.mean is not None and result.mean > self.best:
            self.best = self.state["best"] = result.mean
            self.is_best = True
            if failure := self.save_state():
                self.note(f"warning: {failure}")
        return result

    def notify(self, method: str, *arguments: Any) -> None:
        """Call a method of all callbacks in turn. A logger that raises is dropped."""
        for callback in overriding(self.callbacks, method):
            try:
                getattr(callback, method)(self, *arguments)
            except Exception as error:
                if not isinstance(callback, Logger):
                    raise
                self.callbacks.remove(callback)
                kind = type(callback).__name__.lower()
                self.note(f"warning: logger {kind} is disabled: it raised {reason(error)}")

    def publish(self) -> None:
        """Let the next rollout be collected by the present weights and statistics."""
        weights = to_vector(named_tensors(self.model).values())
        self.rollout.weights[:] = weights.numpy(force=True)
        self.normalize.publish()

    def save_state(self) -> str:
        """Save the state that was taken last; return what has failed, or ""."""
        try:
            is_best = self.is_best and self.state["iteration"] == self.iteration
            save_next(self.folder.checkpoints, self.state, is_best)
        except OSError as error:
            return f"saving the checkpoint of step {self.state['step']} failed ({reason(error)})"
        self.is_saved = True
        self.last_save = time.perf_counter()
        self.notify("on_checkpoint")
        return ""

    def close(self) -> None:
        """Save the last state, and end the workers. Raises SaveFailed."""
        try:
            if self.state and not self.is_saved and (failure := self.save_state()):
                raise SaveFailed(f"{failure}; older checkpoints are intact")
        finally:
            self.pool.close()

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what belongs to the run itself."""
        for name in carried_tables(self.spaces):
            self.rollout.tables[name][-1] = state[f"next.{name}"]
        self.rollout.counts[:] = state["resets"]
        self.iteration = int(state["iteration"])
        self.seconds = float(state["seconds"])
        self.best = float(state["best"])
        self.env_attributes = dict(state["env_attributes"])
        self.state = state
        self.is_saved = True
        self.publish()

    def _restore_episodes(self) -> None:
        """Repeat the open episodes of a resumed run in the environments of its workers."""
        self.pool.call("beat")  # all are ready: one that hangs would not read a long message
        replies = self.pool.call("restore", self.open_episodes.to_replay(), self.env_attributes)
        lost = sorted(x for reply in replies for x in reply)
        self.open_episodes.restart(lost, self.rollout.counts - 1, self.env_attributes)
        self.normalize_reward.restart(lost)
        self.episodes.waiting.update(lost)
        if lost:
            self.note(
                f"resume is not exact: unfinished episodes of environments {lost} could not be "
                "replayed, and new ones start there"
            )
