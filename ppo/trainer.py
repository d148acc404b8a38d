"""Training: collect, learn, log, save."""

import dataclasses
import gc
import math
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ppo.algorithm.learner import Histograms, Learner
from ppo.algorithm.numpy_learner import NumpyLearner
from ppo.algorithm.rollout import Batch, Rollout
from ppo.analysis.doctor import Doctor, IterationDiagnostics
from ppo.config.config import Config, load_preset
from ppo.config.resolve import resolve
from ppo.envs.episodes import OpenEpisodes
from ppo.envs.errors import WorkerError
from ppo.envs.make import Spaces, canonical_id, family_of, make_env
from ppo.envs.normalize import NormalizeReward
from ppo.envs.pool import WorkerPool
from ppo.envs.sampler import RolloutSampler
from ppo.envs.seeding import Stream, integer_seed
from ppo.envs.shared import SharedArray
from ppo.envs.worker import RolloutInfo, Worker
from ppo.errors import CheckpointError, ConfigError
from ppo.models import image_shape, make_actor
from ppo.models.numpy_mlp import NumpyActor, NumpyMLP
from ppo.policy.policy import Policy, best_video, new_model, new_normalizer, preprocessing_of
from ppo.run.checkpoint import LAST, Checkpoints, load_newest
from ppo.run.folder import FAULTS, RunFolder, write_json
from ppo.run.highlights import EpisodeHighlights
from ppo.run.loggers.logger import Logger, read_rows
from ppo.run.state import Snapshot, made_with, restore, snapshot
from ppo.system.autotune import choose_num_workers, measure
from ppo.system.distributed import SINGLE_PROCESS, SingleProcess, join_ranks
from ppo.system.hardware import available_cores, check_memory, disable_malloc_trim
from ppo.system.signals import StopSignals, Terminated


def new_learner(model: Any, config: Config) -> Learner:
    """What learns with a model: in numpy if it has its layout and is on the CPU, else in torch."""
    layout = model.numpy_layout() if config.device == "cpu" else None
    return (
        NumpyLearner(model, config, partial(NumpyMLP, layout)) if layout else Learner(model, config)
    )


class Interrupted(Exception):
    """A signal ended training, after its state was saved."""

    def __init__(
        self, received: signal.Signals, step: int, folder: Path, ranks: SingleProcess
    ) -> None:
        super().__init__(f"{received.name} after step {step}: stopped, saved in {folder}")
        self.exit_code = 130 if received == signal.SIGINT else 143
        if "TORCHELASTIC_RUN_ID" in os.environ:  # else torchrun would start all again
            self.exit_code = 0
        if ranks.rank:
            self.is_reported = True  # by the first one


def train(
    config: Config,
    notes: Sequence[str] = (),
    make_learner: Callable[[Any, Config], Learner] = new_learner,
) -> dict[str, Any]:
    """Train to the end, or until a signal; returns what summary.json holds, and where the checkpoint is. notes: what to
    tell the user first; make_learner: a Learner of your own. Raises ConfigError, EnvironmentUnavailable or
    ModelMismatch before the first iteration, CheckpointError if there is nothing to resume, RunInUse if another process
    has the folder; WorkerError if an environment cannot start or fails too often, NotFinite, NotSaved; Interrupted
    after a signal. Whatever ends it, the last state that was whole is saved."""
    if config.seeds > 1:
        raise ConfigError(
            f"--seeds={config.seeds} is for the command line: from Python call train for each seed"
        )
    is_left_to_us = config.num_workers == "auto"
    config, spaces = resolve(config)
    ranks = join_ranks()
    ranks.check_same_settings(config.__getstate__())
    if is_left_to_us and ranks.size == 1:  # ranks would disturb each other's trials
        count, found = choose_num_workers(config, partial(_pool, config, spaces), made_with())
        config = dataclasses.replace(config, num_workers=count)
        notes = [*notes, found] if found else notes
    try:
        training = Training(config, spaces, make_learner, ranks)
    except ConfigError as error:
        if config.resume in (None, "auto"):
            raise
        raise CheckpointError(
            f"{config.resume} cannot be gone on with, for its settings: {error}"
        ) from error
    if gc.get_freeze_count():  # there was a run before this one
        gc.unfreeze()
        gc.collect()
    gc.freeze()  # what lasts as long as the run needs not be looked at for garbage
    gc.enable()
    start = time.perf_counter()
    one = ranks.on_rank0
    with (
        ranks,
        one(RunFolder, config, training.faults) as run,
        one(Checkpoints, run.path / "checkpoints", run.event) as checkpoints,
    ):
        resumed = training.resume(checkpoints, run) if config.resume not in (None, "auto") else []
        rows = read_rows(run.path, training.iteration)
        training.doctor.remember(rows)
        start -= float(rows[-1]["seconds"]) if rows else 0.0
        notes = [*notes, *training.notes(), *resumed, f"run folder: {run.path}"]
        sizes = (training.num_envs, min(training.num_envs, int(config.num_workers)))
        pool = WorkerPool(
            training.make_worker,
            *sizes,
            step_timeout=config.step_timeout,
            reset_timeout=config.reset_timeout,
            on_event=ranks.noting(run.event),
            sampler=training.acting,
            env_ids=training.numbers,
        )
        with pool as workers, one(Logger, config, run, notes, rows) as logger:
            _iterate(training, run, checkpoints, workers, logger, start)
            return ranks.broadcast_from_rank0(
                partial(_finish, training, run, checkpoints, logger, start)
            )


def _finish(
    training: "Training", run: RunFolder, checkpoints: Checkpoints, logger: Logger, start: float
) -> dict[str, Any]:
    """What a run that has come to its end leaves beside its checkpoints; returns what train does."""
    summary = training.summary(time.perf_counter() - start)
    write_json(run.path / "summary.json", summary)
    if training.config.report:
        training.report(run)
    logger.finish(summary)
    return {**summary, "checkpoint": str(checkpoints.folder / LAST)}


def _iterate(
    training: "Training",
    run: RunFolder,
    checkpoints: Checkpoints,
    workers: WorkerPool,
    logger: Logger,
    start: float,
) -> None:
    """Iterate, log and save until all is done; whatever ends it before, the last whole state is saved. start: when the
    run began, by time.perf_counter. Raises as train does."""
    config, first = training.config, training.iteration + 1
    with StopSignals(at_once=training.ranks.size == 1) as stop:
        whole = training.snapshot()
        checkpoints.save(*whole)
        try:
            for iteration in range(first, config.iterations + 1):
                run.iteration = iteration
                with stop.interruptible():
                    if iteration == first:
                        training.go_on(workers, run)
                    metrics, is_best = training.iterate(workers, run)
                is_last = (
                    stop.agree_to_stop(training.ranks.gather) or iteration == config.iterations
                )
                is_due = is_best or iteration % config.checkpoint_every == 0
                if training.ranks.is_to_keep(is_due or is_last):
                    whole = training.snapshot()
                about = {
                    "iteration": iteration,
                    "step": training.step,
                    "seconds": time.perf_counter() - start,
                }
                logger.log({**about, **metrics}, training.detail)
                if is_due:
                    training.ranks.on_rank0(training.save_highlights, run)
                    checkpoints.save(*whole, is_best)
                if is_last:
                    break
        except Terminated:
            pass
        except Exception:
            checkpoints.save(*whole)
            checkpoints.wait()
            raise
        if (
            training.step == whole[1]["step"]
        ):  # else a signal has cut an iteration off, whose episodes do not count
            training.ranks.on_rank0(training.save_highlights, run)
        checkpoints.save(*whole)
        checkpoints.finish()
        if stop.received:
            run.event("signal", signal=stop.received.name)
            raise Interrupted(stop.received, whole[1]["step"], run.path, training.ranks)


class Training:
    """The parts of a run, wired together, with all of the state that a checkpoint keeps."""

    def __init__(
        self,
        config: Config,
        spaces: Spaces,
        make_learner: Callable[[Any, Config], Learner] = new_learner,
        ranks: SingleProcess = SINGLE_PROCESS,
    ) -> None:
        has_images = image_shape(spaces.observations) is not None
        # With small matrices, more threads would only wait for each other.
        torch.set_num_threads(available_cores() if has_images else 1)
        disable_malloc_trim()
        if config.torch_deterministic:
            os.environ.setdefault(
                "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
            )  # without which CUDA refuses
            torch.use_deterministic_algorithms(
                True
            )  # even False would import torch's whole compiler
        self.config, self.spaces, self.ranks = config, spaces, ranks
        self.numbers = ranks.columns(config.num_envs)  # of the environments that are here
        self.num_envs = len(self.numbers)
        torch.manual_seed(
            integer_seed(config.seed, Stream.MODEL)
        )  # for a loss of one's own that draws something
        weights = (config.num_layers - 1) * int(config.hidden_size) ** 2
        check_memory(
            "hidden_size or --num_layers", 16 * weights
        )  # at least, with gradients and Adam's moments
        self.model = new_model(config, spaces).to(config.device)
        # Workers act on the CPU, whatever the learner's device is.
        layout = self.model.numpy_layout()
        on_cpu = partial(new_model, config, spaces, to_act=True)
        self.make_actor: Any = (
            partial(NumpyActor, layout) if layout else partial(make_actor, on_cpu)
        )
        self.learner = make_learner(self.model, config)
        self.learner.ranks = ranks
        self.normalize_observation = new_normalizer(config, spaces)
        self.normalize_reward = NormalizeReward(
            self.num_envs, config.gamma, bool(config.normalize_rewards)
        )
        self.make_env = partial(make_env, config.env_name, preprocessing_of(config))
        self.iteration = self.step = self.num_episodes = 0
        self.best: float | None = None
        self.detail: Histograms | None = None  # of the last iteration
        head = self.model.policy_head
        self.doctor = Doctor(config, 0 if head.action_dtype is np.int64 else head.action_size)
        self.played = EpisodeHighlights()
        self.recent: deque[tuple[float, float]] = deque(maxlen=100)  # (return, length) of episodes
        self.faults = dict.fromkeys(FAULTS, 0)
        self.warned_of: set[int] = set()  # environments

        sizes, num_rollouts = (config.num_steps, self.num_envs), 2 if config.overlap else 1
        tables = Rollout.layout(*sizes, spaces.observations, self.model, spaces.has_masks)
        rollout_bytes = sum(
            math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in tables.values()
        )
        check_memory("num_envs or --num_steps", rollout_bytes * num_rollouts)
        shared = [
            {name: SharedArray(shape, dtype) for name, (shape, dtype) in tables.items()}
            for _ in range(num_rollouts)
        ]
        self.rollouts = [
            Rollout(**{name: table.array for name, table in one.items()}) for one in shared
        ]
        shared_weights = SharedArray(self.learner.weights.shape, np.float32)
        self.behaviour_weights = shared_weights.array
        self.publish_weights()
        begun = SharedArray((self.num_envs,), np.int64)
        self.begun = (
            begun.array
        )  # episodes of each environment until now, and until the last rollout ended
        self.episode_counts_at_rollout_end = self.begun.copy()
        self.open_episodes = OpenEpisodes(self.num_envs, self.rollout.actions[0, :0].copy())
        self.acting = self._acting() if config.inference == "learner" else None
        self.make_worker = partial(
            Worker,
            config=config,
            make_env=self.make_env,
            make_actor=None if self.acting else self.make_actor,
            normalize=self.normalize_observation,
            rollouts=shared,
            weights=shared_weights,
            episode_counts=begun,
            env_ids=self.numbers,
        )

    def _acting(self) -> RolloutSampler:
        """What acts in this process, on the learner's device, in all environments."""
        config, make = self.config, self.make_actor
        if config.device != "cpu":
            make = partial(make_actor, lambda: new_model(config, self.spaces).to(config.device))
        return RolloutSampler(
            make(self.behaviour_weights),
            self.normalize_observation,
            seed=config.seed,
            env_ids=self.numbers,
            rollouts=self.rollouts,
        )

    @property
    def rollout(self) -> Rollout:
        """The one that was collected last."""
        return self.rollouts[self.iteration % len(self.rollouts)]

    def snapshot(self) -> Snapshot:
        """A copy of all of the run's state, between two iterations."""
        return snapshot(self)

    def resume(self, checkpoints: Checkpoints, run: RunFolder) -> list[str]:
        """Take on the state of the newest checkpoint that is whole; returns what the user should know. Raises
        CheckpointError if there is none, or if it is of something else."""
        damaged = partial(run.event, "checkpoint_damaged")
        path, tensors, state = self.ranks.broadcast_from_rank0(
            lambda: load_newest(checkpoints.folder, damaged)
        )
        differences = restore(self, tensors, state)
        checkpoints.adopt(state)
        run.iteration = self.iteration
        run.event("resumed", checkpoint=path.name, step=self.step, differences=differences)
        note = f"resumes after step {self.step:,}, from {path}"
        return (
            [note, f"not exactly as it would have gone on, for {', '.join(differences)}"]
            if differences
            else [note]
        )

    def go_on(self, workers: WorkerPool, run: RunFolder) -> None:
        """Bring the environments to where they were left, if the run is resumed."""
        if self.iteration:
            begun = workers.restore(self.open_episodes.open)
            self.episode_counts_at_rollout_end[:] = self.begun
            self.open_episodes.restart(begun, self.episode_counts_at_rollout_end - 1)
            self.normalize_reward.returns[begun] = 0
            lost = [
                number
                for rank in self.ranks.gather([self.numbers[index] for index in begun])
                for number in rank
            ]
            if lost:
                problem = f"resume is not exact: in environments {lost} the open episode did not happen again as it had"
                run.event(
                    "episodes_lost",
                    f"{problem}, a new one began; --fresh_env_per_episode may help from the start",
                )

    def iterate(self, workers: WorkerPool, run: RunFolder) -> tuple[dict[str, Any], bool]:
        """Collect, learn, and evaluate if it is time. Returns metrics, and whether the policy is the best so far."""
        began = time.perf_counter()
        number = self.iteration + 1
        report = workers.collect(number)
        collected = time.perf_counter()
        is_ahead = self.config.overlap and number < self.config.iterations
        metrics = self.learn(
            report, partial(workers.collect_async, number + 1) if is_ahead else None
        )
        learned = time.perf_counter()
        evaluation, is_best = self._evaluate_if_due(run)
        self.ranks.on_rank0(self._film_if_due, run)
        for problem in self.doctor.look(
            metrics, self.seen, self.iteration / self.config.iterations
        ):
            run.event("doctor", problem)
        self._note_faults(metrics, run)
        speed = {"steps_per_second": self.config.rollout_size / (learned - began)}
        phases = {"seconds_collecting": collected - began, "seconds_learning": learned - collected}
        phases["seconds_exchanging"], self.ranks.seconds = self.ranks.seconds, 0.0
        faults = {f"faults/{name}": count for name, count in self.faults.items()}
        return {**speed, **metrics, **evaluation, **phases, **faults}, is_best

    def save_highlights(self, run: RunFolder) -> None:
        """Note those episodes since the last time that are worth seeing."""
        run.episodes.append(self.played.to_json_lines(self.step))
        self.played.clear()

    def learn(self, report: RolloutInfo, go_on: Callable[[], None] | None = None) -> dict[str, Any]:
        """Learn from the rollout that workers have filled, and publish_weights what was learned; with overlap, what was learned
        before it. go_on: to be called when they may begin the next one. Returns metrics."""
        self.iteration += 1
        self.episode_counts_at_rollout_end[:] = self.begun
        self.step += self.config.rollout_size
        ended = [
            (episode.step, self.numbers[episode.environment], *episode[2:])
            for episode in report.episodes
        ]
        outside = [
            (self.numbers[index], count) for index, count in report.num_outside.items() if count
        ]
        everywhere = self.ranks.gather((ended, outside))
        ended, self.outside = (
            sorted(x for rank in everywhere for x in rank[kind]) for kind in (0, 1)
        )
        self.num_episodes += len(ended)
        self.recent.extend(episode[2:] for episode in ended)
        rollout, normalize = self.rollout, self.normalize_observation
        clip, dones = self.config.clip_rewards, rollout.terminations | rollout.truncations
        self.normalize_reward.returns[report.reset_envs] = 0
        played = self.open_episodes.update(
            rollout.actions, dones, report, self.episode_counts_at_rollout_end
        )
        self.played.add(
            [episode._replace(environment=self.numbers[episode.environment]) for episode in played]
        )
        batch = self.learner.make_batch(
            rollout,
            normalize(rollout.observations),
            np.sign(rollout.rewards)
            if clip
            else self.normalize_reward(rollout.rewards, dones, self.ranks.all_reduce_moments),
            [
                last._replace(observation=normalize(last.observation))
                for last in report.last_observations
            ],
            self.behaviour_weights if self.config.overlap else None,
        )
        normalize.update(rollout.observations[:-1], self.ranks.all_reduce_moments)
        if self.config.overlap:
            self.publish_weights()
        if go_on:
            go_on()
        shuffle_seed = integer_seed(self.config.seed, Stream.SHUFFLE, self.iteration)
        metrics = self.learner.learn(batch, self.iteration, shuffle_seed)
        self.seen = self._seen(batch, report)
        is_due = self._is_due(self.config.histogram_every)
        self.detail = self.ranks.on_rank0(self._detail, batch, report) if is_due else None
        if not self.config.overlap:
            self.publish_weights()
        return {"episodes": self.num_episodes, **self._recent_means(), **metrics}

    def publish_weights(self) -> None:
        """Have those who act do so by the learner's weights, from the next rollout on."""
        self.behaviour_weights[:] = self.learner.weights.cpu()

    def notes(self) -> list[str]:
        """What was decided for the user, for the user to see."""
        config = self.config
        if image_shape(self.spaces.observations) is None:
            return []
        is_atari = family_of(config.env_name, config.env_kwargs) == "Atari"
        sticky = f", sticky actions {config.sticky_actions}" if is_atari else ""
        threads = f", threads: {torch.get_num_threads()}" if config.device == "cpu" else ""
        return [
            f"images: frame skip {config.frame_skip}{sticky}, frame stack {config.frame_stack}",
            f"learner: {config.model} in {config.precision} on {config.device}{threads}",
        ]

    def summary(self, seconds: float) -> dict[str, Any]:
        """What the run came to, with an evaluation of the final policy."""
        run = {"env_name": self.config.env_name, "seed": self.config.seed, "steps": self.step}
        speed = {"seconds": round(seconds, 3), "steps_per_second": round(self.step / seconds, 1)}
        returns = {
            "mean_return": self._recent_means()["episode_return_mean"],
            "evaluation": self._evaluate(),
        }
        return {**run, **speed, "episodes": self.num_episodes, **returns}

    def report(self, run: RunFolder) -> None:
        """Show what the run has come to, as far as that can be."""
        from ppo.analysis.plots import draw, read_run
        from ppo.analysis.report import write_report

        try:
            written = read_run(run.path)
            draw([written], run.path / "curve.png")
            write_report(written, best_video(run.path, self._policy()), run.path / "report.html")
        except Exception as error:
            run.event(
                "report_failed", f"curve.png and report.html cannot be written: {_reason(error)}"
            )

    def _seen(self, batch: Batch, report: RolloutInfo) -> IterationDiagnostics:
        """What the doctor looks at."""
        rollout, is_image = self.rollout, image_shape(self.spaces.observations) is not None
        endings = [
            bool(rollout.truncations[episode.step, episode.environment])
            for episode in report.episodes
        ]
        shown = rollout.observations[:: max(1, len(rollout.observations) // 8)]
        largest = None if is_image else float(np.abs(shown).max())
        return IterationDiagnostics(
            endings, batch["returns"].std().item(), largest, bool((shown == shown[0, 0]).all())
        )

    def _film_if_due(self, run: RunFolder) -> None:
        """Film an episode of the present policy; what goes wrong with that does not end training."""
        if self._is_due(self.config.video_every):
            path = run.path / "videos" / f"{self.step}.mp4"
            try:
                path.unlink(missing_ok=True)  # of a run that went on from before
                self._policy().evaluate(1, video=path)
            except Exception as error:
                run.event(
                    "video_failed", f"{path} cannot be made: {_reason(error)}; training goes on"
                )

    def _detail(self, batch: Batch, report: RolloutInfo) -> Histograms | None:
        """More of an iteration than its metrics, for those loggers that show it."""
        if not {"tensorboard", "wandb"} & {*self.config.logger.split(",")}:
            return None
        episodes = np.array([episode[2:] for episode in report.episodes], np.float32).reshape(-1, 2)
        ended = (
            dict(zip(("episode_returns", "episode_lengths"), episodes.T, strict=True))
            if len(episodes)
            else {}
        )
        devices = [self.config.device] if self.config.device.startswith("cuda") else []
        with torch.random.fork_rng(
            devices
        ):  # lest a model that draws something learn otherwise for being looked at
            values = {**self.learner.detail(batch), **ended}
        image, shape = None, image_shape(self.spaces.observations)
        if shape:
            image = (
                self.rollout.observations[-1, 0].ravel()[: math.prod(shape)].reshape(shape)[..., -1]
            )
        return Histograms(values, None if image is None else image.astype(np.uint8))

    def _is_due(self, every: int | None) -> bool:
        return every is not None and self.iteration % every == 0

    def _note_faults(self, metrics: dict[str, Any], run: RunFolder) -> None:
        """Count what was wrong in an iteration, and tell the user, of each environment once."""
        for number, count in self.outside:
            if number not in self.warned_of:
                self.warned_of.add(number)
                problem = f"environment {number} has shown an observation outside of its space"
                run.event(
                    "observation_outside",
                    f"{problem}; it is used as it is, and more are only counted",
                    count,
                )
            else:
                self.faults["observation_outside"] += count
        if skipped := metrics["skipped_steps"]:
            problem = f"{skipped} gradient steps of iteration {run.iteration} were left out"
            run.event(
                "step_skipped", f"{problem}, for their loss or gradient was not finite", skipped
            )

    def _evaluate_if_due(self, run: RunFolder) -> tuple[dict[str, Any], bool]:
        """A metric if there is a rhythm of evaluations, None between them, and whether it is the best so far."""
        if not self.config.eval_every:
            return {}, False
        is_due = self._is_due(self.config.eval_every)
        mean = (
            self.ranks.broadcast_from_rank0(partial(self._try_evaluation, run)) if is_due else None
        )
        is_best = mean is not None and (self.best is None or mean > self.best)
        self.best = mean if is_best else self.best
        return {"evaluation_return_mean": mean}, is_best

    def _try_evaluation(self, run: RunFolder) -> float | None:
        """The mean return of an evaluation, if it can be made."""
        try:
            return self._evaluate()["mean"]
        except WorkerError as error:
            run.event(
                "evaluation_failed",
                f"{error.args[0]}; training goes on",
                traceback="".join(error.args[1:]),
            )
            return None

    def _evaluate(self) -> dict[str, Any]:
        """The present policy's evaluation, which changes neither weights nor statistics nor any random stream."""
        return self._policy().evaluate(self.config.eval_episodes, num_envs=self.config.num_envs)

    def _policy(self) -> Policy:
        """What acts as the learner's weights are now."""
        return Policy(
            self.config, self.spaces, self.learner.weights.cpu().numpy(), self.normalize_observation
        )

    def _recent_means(self) -> dict[str, float | None]:
        """Of the last 100 episodes; None before there is one."""
        means = np.mean(self.recent, axis=0).tolist() if self.recent else (None, None)
        return dict(zip(("episode_return_mean", "episode_length_mean"), means, strict=True))


def _reason(error: Exception) -> Any:
    """What went wrong, in a line."""
    return error.args[0] if isinstance(error, WorkerError) else error


def _pool(config: Config, spaces: Spaces, num_workers: int) -> WorkerPool:
    """Workers for a run of its own."""
    training = Training(dataclasses.replace(config, num_workers=num_workers), spaces)
    return WorkerPool(
        training.make_worker,
        config.num_envs,
        num_workers,
        step_timeout=config.step_timeout,
        reset_timeout=config.reset_timeout,
        sampler=training.acting,
    )


def recommend(env_name: str, env_kwargs: Any) -> tuple[Callable[[], Any], list[str], list[str]]:
    """What makes an environment as for training with its tuned values, what was tried to find how many workers collect
    fastest, and the flags that follow. Raises as resolve does, and WorkerError if an environment raises."""
    name = canonical_id(env_name)
    preset = load_preset("auto", name, family_of(name, env_kwargs))
    config, spaces = resolve(Config(**{**preset, "env_name": name, "env_kwargs": env_kwargs}))
    counts = (0, int(config.num_workers))
    speeds = {count: measure(_pool(config, spaces, count), config) for count in counts}
    tried = [
        f"tuned values: {', '.join(f'{key}={x}' for key, x in preset.items()) or 'none, the defaults are taken'}"
    ]
    tried += [
        f"{count} worker processes collect {speed:,.0f} steps/s" for count, speed in speeds.items()
    ]
    best = max(speeds, key=lambda count: speeds[count])
    whole_games = preprocessing_of(config)._replace(end_on_life_loss=False)
    return (
        partial(make_env, name, whole_games),
        tried,
        [f"--env_name={name}", f"--model={config.model}", f"--num_workers={best}"],
    )
