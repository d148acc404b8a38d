"""A run: its parts, wired together, and what callbacks see of it and may do."""

import math
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy import ndarray

from ppo.callbacks import Callback
from ppo.checkpoint import Checkpoints
from ppo.config import Config, flag_names
from ppo.envs.normalize import (
    NormalizeObservation,
    NormalizeReward,
    ObservationStatistics,
    shared_statistics,
)
from ppo.envs.observations import NUMBERS
from ppo.envs.pool import Stopped, WorkerPool
from ppo.envs.seeding import Stream, integer_seed
from ppo.envs.shared_memory import SharedArray
from ppo.errors import ConfigError, EnvironmentFailed, SaveFailed, reason
from ppo.evaluation import Evaluation
from ppo.flags import checked
from ppo.folder import RunFolder
from ppo.learner import Learner
from ppo.loggers import Logger
from ppo.models import MakeTorchActor, make_actor_of, make_model
from ppo.models.actor_critic import named_tensors, to_vector
from ppo.models.numpy_mlp import structure_of
from ppo.numpy_learner import NumpyLearner
from ppo.open_episodes import OpenEpisodes
from ppo.policy import Policy
from ppo.probe import difference
from ppo.rollout import Batch, Metrics, Rollout, share_tables
from ppo.settings import Settings
from ppo.signals import StopSignals
from ppo.state import take
from ppo.statistics import EpisodeStatistics

if TYPE_CHECKING:
    from ppo.envs.pool import Shared

LEARNERS: list[type[Learner]] = [NumpyLearner, Learner]  # the first that supports a model learns it


class Run:
    """A run, as its loop and callbacks see it.

    config, spaces: its settings and spaces; iteration: how many are done; metrics, rollout, batch:
    of the last one; stop_reason: why it ends early, or ""."""

    def __init__(
        self,
        settings: Settings,
        folder: RunFolder,
        callbacks: Sequence[Callback],
        signals: StopSignals,
        own_learner: Any = None,
    ) -> None:
        self.config = settings.config
        self.given = settings.given.to_json()
        self.spaces = settings.spaces
        self.folder = folder
        self.callbacks = [*callbacks]
        self.signals = signals
        self.checkpoints = Checkpoints(folder.path / "checkpoints")
        self.iteration = 0
        self.seconds = 0.0
        self.stop_reason = ""
        self.metrics: Metrics = {}
        self.batch: Batch = {}
        self.env_attributes: dict[str, Any] = {}  # of new episodes, by set_env
        self.times: dict[str, float] = {}  # of this iteration's phases
        self.state: dict[str, Any] = {}  # of the last whole iteration
        self.is_saved = False
        self.failure = ""  # of the last checkpoint
        self.is_save_due = False
        self.is_best = False
        self.pool: WorkerPool | None = None
        self._make_parts(own_learner)

    def _make_parts(self, own_learner: Any) -> None:
        config, spaces = self.config, self.spaces
        torch.manual_seed(integer_seed(config.seed, Stream.MODEL))  # for losses that draw numbers
        self.model = make_model(config, spaces, config.hooks).to(config.device)
        self.learner = self._make_learner(own_learner)
        self.make_actor: Any = None
        tables = share_tables(config, spaces, self.model)
        self.rollout = Rollout({name: x.array for name, x in tables.items()}, spaces.layout)
        weights = SharedArray((len(self._weights()),), np.float32)
        box = spaces.layout.tables[NUMBERS]
        has_numbers = spaces.layout.has_numbers
        shift, scale = shared_statistics(box.shape if has_numbers else (), box.dtype)
        counts = SharedArray((config.num_envs,), np.int64)
        self.shared: Shared = {
            **tables,
            "weights": weights,
            "shift": shift,
            "scale": scale,
            "counts": counts,
        }
        self.behaviour_weights = weights.array
        self.num_resets = counts.array
        enabled = bool(has_numbers and config.normalize_observations)
        self.normalize = NormalizeObservation(shift.array, scale.array, enabled)
        self.observation_statistics = ObservationStatistics(self.normalize)
        self.normalize_reward = NormalizeReward(config.num_envs, config.gamma)
        self.episodes = EpisodeStatistics(config.num_envs)
        self.open_episodes = OpenEpisodes(config.num_envs)
        self.publish_weights()

    def _make_learner(self, own: Any) -> Learner:
        arguments = (self.model, self.config, self.spaces.layout, self.callbacks)
        if own:
            return own(*arguments)
        for kind in LEARNERS:
            if kind.supports(self.model, self.config, self.callbacks):
                return kind(*arguments)
        raise ConfigError(f"no learner supports --model={self.config.model}")

    def start(self) -> None:
        """Start workers and callbacks, and take the state that an early end would save."""
        self.check_numpy()
        self.pool = self._make_pool()
        if self.iteration:
            self._restore_episodes()
        self.notify("on_start")
        self.clock = time.perf_counter()
        self.state = take(self)

    def _make_pool(self) -> WorkerPool:
        config = self.config
        make_actor = self.make_actor
        if config.inference == "learner" and config.device != "cpu":
            make_actor = MakeTorchActor(config, self.spaces, config.hooks, config.device)
        return WorkerPool(
            self.spaces, self.shared, make_actor, self.signals.urgent, self._note_loss
        )

    def collect(self) -> Rollout:
        """Have workers collect the next rollout, by the weights that were published."""
        assert self.pool
        with self.timer("collecting"):
            self.rollout.report = self.pool.collect(self.iteration + 1, self.env_attributes)
        self.iteration += 1
        self.normalize_reward.returns[self.rollout.report.new] = 0
        self.open_episodes.update(self.rollout, self.num_resets, self.env_attributes)
        return self.rollout

    def make_batch(self, rollout: Rollout) -> Batch:
        """Normalise a rollout, and evaluate it under the weights that collected it. Rewards are
        scaled by statistics that include those of this rollout; observations are not."""
        with self.timer("learning"):
            rewards = rollout.rewards
            if self.config.clip_rewards:
                rewards = np.sign(rewards)
            elif self.config.normalize_rewards:
                rewards = self.normalize_reward.update_and_scale(rewards, rollout.dones)
            self.batch = self.learner.make_batch(rollout, self.normalize, rewards)
            self.notify("on_batch", self.batch)
        return self.batch

    def update(self, batch: Batch) -> Metrics:
        """Learn from a batch, and publish the new weights and statistics."""
        with self.timer("learning"):
            numbers = self.rollout.tables[NUMBERS][:-1]
            self.observation_statistics.update(numbers.reshape(-1, *numbers.shape[2:]))
            metrics = self.learner.update(batch, self.iteration, self.signals.urgent)
            self.publish_weights()
        return metrics

    def end_iteration(self, metrics: Metrics) -> None:
        """Let callbacks log, evaluate, save and stop; take the state, and save it if it is due."""
        for episode in self.rollout.report.episodes:
            self.episodes.add(episode)
            self.notify("on_episode", episode)
        before, self.clock = self.clock, time.perf_counter()
        self.seconds += self.clock - before
        self.metrics = {
            "iteration": self.iteration,
            "step": self.step,
            "seconds": self.seconds,
            "steps_per_second": self.config.rollout_size / sum(self.times.values()),
            "episodes": self.episodes.count,
            **self.episodes.means(),
            **metrics,
            **{f"seconds_{name}": x for name, x in self.times.items()},
        }
        self.times = {}
        if metrics["skipped_steps"]:
            self.note(
                f"warning: {metrics['skipped_steps']} gradient steps of iteration {self.iteration} "
                "were left out: their loss or gradient was not finite"
            )
        self.is_save_due = self.is_best = False
        self.notify("on_iteration")
        self.state = take(self)
        self.is_saved = False
        if self.is_save_due:
            self.check_numpy()
            self.save_state()

    @property
    def step(self) -> int:
        """Number of environment steps so far."""
        return self.iteration * self.config.rollout_size

    def is_due(self, every: int | None) -> bool:
        """Return whether this iteration is a multiple of every; False for None."""
        return bool(every and self.iteration % every == 0)

    def log(self, name: str, value: float | None) -> None:
        """Add a metric to this iteration; None: no value. Raises ValueError for a value that is not
        finite, or a name with other characters than letters, digits and _ / . -"""
        if not re.fullmatch(r"[\w/.-]+", name) or not math.isfinite(value or 0):
            raise ValueError(f"the metric {name}={value} is not a finite number with a plain name")
        self.metrics[name] = None if value is None else float(value)

    def stop(self, why: str) -> None:
        """End the run after this iteration, as if it were the last one. The first reason counts."""
        if not self.stop_reason:
            self.stop_reason = why
            self.note(f"the run ends early: {why}")

    def save(self, *, is_best: bool = False) -> None:
        """Save a checkpoint of this iteration, also as the best one."""
        self.is_save_due = True
        self.is_best |= is_best

    def set_env(self, **attributes: Any) -> None:
        """Change the training task: from its next episode on, each environment gets attributes,
        which are JSON values. They are passed to its method set_training, or else set by name."""
        self.env_attributes = {**self.env_attributes, **attributes}

    def change(self, **flags: Any) -> None:
        """Give flags such as learning_rate other values from the next iteration on. Raises
        ConfigError for one that cannot change during a run."""
        values = checked(flags, [Config])
        if fixed := values.keys() - {*flag_names("live")}:
            raise ConfigError(
                f"{min(fixed)} cannot change during a run: give some of "
                f"{', '.join(flag_names('live'))}"
            )
        self.config = replace(self.config, **values)
        self.given |= {name: x for name, x in self.config.to_json().items() if name in values}
        self.learner.change(self.config)

    def note(self, sentence: str, details: str = "") -> None:
        """Tell the user a sentence, and keep it in notes.txt."""
        self.folder.note(sentence, details)

    def policy(self) -> Policy:
        """Return the present policy, with copies of weights and statistics."""
        return Policy(
            self.spaces,
            weights={
                n: x.detach().cpu().numpy().copy() for n, x in named_tensors(self.model).items()
            },
            make_actor=self.make_actor,
            statistics=(self.normalize.shift.copy(), self.normalize.scale.copy()),
            env_attributes=self.env_attributes,
            step=self.step,
        )

    def evaluate(self, episodes: int | None = None) -> Evaluation:
        """Evaluate the present policy, by default in --eval_episodes; nothing of the run changes.
        There are no episodes if the environment fails. Raises Stopped after a signal."""
        episodes = self.config.eval_episodes if episodes is None else episodes
        is_over = self.iteration >= self.config.iterations or bool(self.stop_reason)
        should_stop = self.signals.any if is_over else self.signals.urgent
        try:
            result = self.policy().evaluate(
                episodes, num_envs=self.config.num_envs, should_stop=should_stop
            )
        except EnvironmentFailed as error:
            self.note(f"warning: an evaluation failed; {error.args[0]}", *error.args[1:])
            result = Evaluation()
        if should_stop():
            raise Stopped
        self.notify("on_evaluation", result)
        return result

    def notify(self, method: str, *arguments: Any) -> None:
        """Call a method of all callbacks in turn. A logger that raises is dropped."""
        for callback in [*self.callbacks]:
            if getattr(type(callback), method) is getattr(Callback, method):
                continue
            try:
                getattr(callback, method)(self, *arguments)
            except Exception as error:
                if not isinstance(callback, Logger):
                    raise
                self.callbacks.remove(callback)
                kind = type(callback).__name__.lower()
                self.note(f"warning: logger {kind} is dropped, as it raised {reason(error)}")

    def publish_weights(self) -> None:
        """Copy the weights to shared memory; the next rollout is collected by them."""
        self.behaviour_weights[:] = self._weights()

    def _weights(self) -> ndarray:
        return to_vector(named_tensors(self.model).values()).cpu().numpy()

    def check_numpy(self) -> None:
        """Let torch learn and act from now on where numpy does not compute the same."""
        about = "torch {} from here on: numpy computes {} than the torch code, which was edited"
        if what := difference(self.learner):
            self.note(about.format("learns", f"another {what}"))
            state = self.learner.state_dict()
            self.learner = Learner(self.model, self.config, self.spaces.layout, self.callbacks)
            self.learner.load_state_dict(state)
        make_actor = make_actor_of(self.model, self.config, self.spaces, self.config.hooks)
        if structure_of(self.model) and isinstance(make_actor, MakeTorchActor):
            if not isinstance(self.make_actor, MakeTorchActor):
                self.note(about.format("acts", "other actions"))
            if self.pool:
                self.pool.act_by(make_actor)
        self.make_actor = make_actor

    def save_state(self) -> None:
        """Save the state that was taken last. If that fails, it is tried again at the next
        checkpoint."""
        try:
            self.checkpoints.save(self.state, is_best=self.is_best)
        except OSError as error:
            self.failure = f"the checkpoint of step {self.state['step']} failed ({reason(error)})"
            self.note(f"warning: {self.failure}")
            return
        self.is_saved = True
        self.notify("on_checkpoint")

    def close(self) -> None:
        """Save the last state, and end the workers. Raises SaveFailed."""
        try:
            if self.state and not self.is_saved:
                self.is_best = False
                self.save_state()
                if not self.is_saved:
                    raise SaveFailed(f"{self.failure}; older checkpoints are intact")
        finally:
            if self.pool:
                self.pool.close()

    @contextmanager
    def timer(self, phase: str) -> Iterator[None]:
        """Add the seconds of the context to a phase of this iteration."""
        start = time.perf_counter()
        yield
        self.times[phase] = self.times.get(phase, 0.0) + time.perf_counter() - start

    def _restore_episodes(self) -> None:
        """Repeat the open episodes of a resumed run in the environments of its workers."""
        assert self.pool
        replies = self.pool.call("restore", self.open_episodes.to_replay())
        lost = sorted(x for reply in replies for x in reply)
        self.open_episodes.begin(lost, self.num_resets - 1, self.env_attributes)
        self.normalize_reward.returns[lost] = 0
        if lost:
            self.episodes.waiting |= {*lost}
            self.note(
                f"resume is not exact: the open episodes of environments {lost} could not be "
                "repeated, and new ones begin there"
            )

    def _note_loss(self, cause: str, details: str) -> None:
        self.note(f"warning: a worker is replaced; {cause}", details)
