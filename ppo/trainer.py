"""Training: collect, learn, log, save."""

import dataclasses
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

from envs.make import Preprocessing, Spaces, atari_spec, canonical_id, make_env, spaces_of
from envs.normalize import NormalizeReward
from envs.pool import WorkerPool
from envs.seeding import Stream, integer_seed
from envs.shared import SharedArray
from envs.worker import Episode, Report, Worker
from models import HIDDEN_SIZES, choose_model, image_shape, make_actor
from ppo import checkpoint
from ppo.config import Config, ConfigError
from ppo.hardware import available_cores, find_device, has_bfloat16, keep_memory
from ppo.learner import Learner
from ppo.logger import Logger
from ppo.policy import Policy, new_model, new_normalizer, preprocessing_of
from ppo.rollout import Rollout
from ppo.run import create_run_folder, write_json
from ppo.signals import StopSignals


class Interrupted(Exception):
    """A signal ended training, after its state was saved."""

    def __init__(self, received: signal.Signals, step: int, folder: Path) -> None:
        super().__init__(f"{received.name} after step {step}: stopped, saved in {folder}")
        self.exit_code = 128 + received


def train(
    config: Config, notes: Sequence[str] = (), make_learner: Callable[[Any, Config], Learner] = Learner
) -> dict[str, Any]:
    """Train to the end, or until a signal; returns what summary.json holds, and where the checkpoint is. notes: what to
    tell the user first; make_learner: a Learner of your own. Raises ConfigError, EnvironmentUnavailable or
    ModelMismatch before the first iteration; WorkerError if an environment or a worker fails; Interrupted after a
    signal."""
    config, spaces = resolve(config)
    training = Training(config, spaces, make_learner)
    folder = create_run_folder(config)
    start = time.perf_counter()
    with (
        WorkerPool(training.make_worker, config.num_envs, int(config.num_workers)) as workers,
        Logger(config, folder, [*notes, *training.notes(), f"run folder: {folder}"]) as logger,
    ):
        with StopSignals() as stop:
            for iteration in range(1, config.iterations + 1):
                began = time.perf_counter()
                report = workers.collect(iteration)
                collected = time.perf_counter()
                metrics = training.learn(report)
                learned = time.perf_counter()
                metrics |= training.evaluate_if_due(folder / "checkpoints" / "best.safetensors")
                speed = {"seconds": learned - start, "steps_per_second": config.rollout_size / (learned - began)}
                phases = {"seconds_collecting": collected - began, "seconds_learning": learned - collected}
                logger.log({"iteration": iteration, "step": training.step, **speed, **metrics, **phases})
                if stop.received or iteration % config.checkpoint_every == 0 or iteration == config.iterations:
                    training.save(folder / "checkpoints" / "last.safetensors")
                if stop.received:
                    raise Interrupted(stop.received, training.step, folder)
        summary = training.summary(time.perf_counter() - start)
        write_json(folder / "summary.json", summary)
        logger.finish(summary)
    return {**summary, "checkpoint": str(folder / "checkpoints" / "last.safetensors")}


class Training:
    """The parts of a run, wired together, with all of the state that a checkpoint keeps."""

    def __init__(
        self, config: Config, spaces: Spaces, make_learner: Callable[[Any, Config], Learner] = Learner
    ) -> None:
        has_images = image_shape(spaces.observations) is not None
        # With small matrices, more threads would only wait for each other.
        torch.set_num_threads(available_cores() if has_images else 1)
        keep_memory()
        if config.torch_deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without which CUDA refuses
            torch.use_deterministic_algorithms(True)  # even False would import torch's whole compiler
        self.config, self.spaces = config, spaces
        torch.manual_seed(integer_seed(config.seed, Stream.MODEL))  # for a loss of one's own that draws something
        self.model = new_model(config, spaces).to(config.device)
        # Those who act do so on the CPU, whatever the learner's device is.
        self.make_actor = partial(make_actor, partial(new_model, config, spaces, to_act=True))
        self.learner = make_learner(self.model, config)
        self.normalize_observation = new_normalizer(config, spaces)
        self.normalize_reward = NormalizeReward(config.num_envs, config.gamma, bool(config.normalize_rewards))
        self.make_env = partial(make_env, config.env_name, preprocessing_of(config))
        self.iteration = self.step = self.num_episodes = 0
        self.best = -math.inf
        self.recent: deque[Episode] = deque(maxlen=100)

        sizes = (config.num_steps, config.num_envs)
        layout = Rollout.layout(*sizes, spaces.observations, self.model, spaces.has_masks)
        shared = {name: SharedArray(shape, dtype) for name, (shape, dtype) in layout.items()}
        self.rollout = Rollout(**{name: table.array for name, table in shared.items()})
        shared_weights = SharedArray(self.learner.weights.shape, np.float32)
        self.published = shared_weights.array
        self.published[:] = self.learner.weights.cpu()
        make = (self.make_env, self.make_actor, self.normalize_observation)
        self.make_worker = partial(Worker, config, *make, shared, shared_weights)

    def learn(self, report: Report) -> dict[str, Any]:
        """Learn from the rollout that workers have filled, and publish what was learned. Returns metrics."""
        self.iteration += 1
        self.step += self.config.rollout_size
        self.num_episodes += len(report.episodes)
        self.recent.extend(report.episodes)
        rollout, normalize = self.rollout, self.normalize_observation
        clip, dones = self.config.clip_rewards, rollout.terminations | rollout.truncations
        batch = self.learner.make_batch(
            rollout,
            normalize(rollout.observations),
            np.sign(rollout.rewards) if clip else self.normalize_reward(rollout.rewards, dones),
            [last._replace(observation=normalize(last.observation)) for last in report.last_observations],
        )
        shuffle_seed = integer_seed(self.config.seed, Stream.SHUFFLE, self.iteration)
        metrics = self.learner.learn(batch, self.iteration, shuffle_seed)
        normalize.update(rollout.observations[:-1])
        self.published[:] = self.learner.weights.cpu()
        means = {f"{name}_mean": self._recent_mean(name) for name in ("episode_return", "episode_length")}
        return {"episodes": self.num_episodes, **means, **metrics}

    def notes(self) -> list[str]:
        """What was decided for the user, for the user to see."""
        config = self.config
        if image_shape(self.spaces.observations) is None:
            return []
        sticky = f", sticky actions {config.sticky_actions}" if atari_spec(config.env_name) else ""
        threads = f", threads: {torch.get_num_threads()}" if config.device == "cpu" else ""
        return [
            f"images: frame skip {config.frame_skip}{sticky}, frame stack {config.frame_stack}",
            f"learner: {config.model} in {config.precision} on {config.device}{threads}",
        ]

    def summary(self, seconds: float) -> dict[str, Any]:
        """What the run came to, with an evaluation of the final policy."""
        run = {"env_name": self.config.env_name, "seed": self.config.seed, "steps": self.step}
        speed = {"seconds": round(seconds, 3), "steps_per_second": round(self.step / seconds, 1)}
        returns = {"mean_return": self._recent_mean("episode_return"), "evaluation": self._evaluate()}
        return {**run, **speed, "episodes": self.num_episodes, **returns}

    def save(self, path: Path) -> None:
        """Write a checkpoint: weights, optimiser, statistics, config and counters."""
        parts: dict[str, dict[str, Any]] = {
            "model": dict(self.model.named_parameters()),
            "optimizer": self.learner.optimizer.state_dict()["state"].get(0, {}),
            "normalize_observation": vars(self.normalize_observation.statistics),
            "normalize_reward": vars(self.normalize_reward.statistics) | {"returns": self.normalize_reward.returns},
        }
        tensors = {
            f"{part}.{key}": torch.as_tensor(x)
            for part, named in parts.items()
            for key, x in named.items()
            if x is not None
        }
        counters = {"iteration": self.iteration, "step": self.step, "episodes": self.num_episodes}
        checkpoint.save(path, tensors, {"config": self.config.__getstate__(), **counters})

    def evaluate_if_due(self, path: Path) -> dict[str, Any]:
        """A metric if there is a rhythm of evaluations, None between them; the best policy so far is saved to path."""
        if not self.config.eval_every:
            return {}
        mean = self._evaluate()["mean"] if self.iteration % self.config.eval_every == 0 else None
        if mean is not None and mean > self.best:
            self.best = mean
            self.save(path)
        return {"evaluation_return_mean": mean}

    def _evaluate(self) -> dict[str, Any]:
        """The present policy's evaluation, which changes neither weights nor statistics nor any random stream."""
        policy = Policy(self.config, self.spaces, self.published, self.normalize_observation)
        return policy.evaluate(self.config.eval_episodes, num_envs=self.config.num_envs)

    def _recent_mean(self, name: str) -> float | None:
        """Mean of a field of the last 100 episodes; None before there is one."""
        return float(np.mean([getattr(episode, name) for episode in self.recent])) if self.recent else None


def resolve(config: Config) -> tuple[Config, Spaces]:
    """The config with every auto replaced by what it means here, and the spaces of observations and actions. Raises
    EnvironmentUnavailable, ModelMismatch if the model cannot read the observations, ConfigError if there is no such
    device or a flag means nothing for this environment."""
    config = dataclasses.replace(config, env_name=canonical_id(config.env_name))
    atari = atari_spec(config.env_name, preprocessing_of(config))
    sticky = atari.kwargs.get("repeat_action_probability", "auto") if atari else "auto"
    given, config = config, _replace_auto(config, frame_skip=4 if atari else 1, sticky_actions=sticky)
    spaces = spaces_of(config.env_name, preprocessing_of(config))
    model = choose_model(config.model, spaces.observations)
    images = image_shape(spaces.observations)
    for name in () if atari else Preprocessing._fields[4 if images else 1 :]:
        if getattr(given, name) != getattr(Config, name):
            raise ConfigError(f"--{name} means nothing for {config.env_name}: leave it out, and a preset that sets it")
    only_images = images == spaces.observations.shape
    if only_images and config.normalize_observations is True:
        raise ConfigError("--normalize_observations is for vectors: leave it out, images are scaled to [0, 1]")
    if not images and config.precision == "bfloat16":
        raise ConfigError("--precision=bfloat16 is for images: leave it out, the mlp would not gain by it")
    if model == "lstm" and config.share_trunk is False:
        raise ConfigError("--share_trunk=False: leave it out, policy and value share what the lstm remembers")
    device = find_device(config.device, images is not None)
    resolved = _replace_auto(
        dataclasses.replace(config, model=model, device=device),
        num_workers=min(config.num_envs, available_cores()),
        clip_value_coef=config.clip_coef,
        normalize_observations=not only_images,
        normalize_rewards=images is None and not config.clip_rewards,
        hidden_size=HIDDEN_SIZES.get(model, HIDDEN_SIZES["mlp"]),
        share_trunk=images is not None or model == "lstm",
        log_std_init=-2.0 if config.use_sde else 0.0,
        precision="bfloat16" if images and has_bfloat16(device) else "float32",
    )
    return resolved, spaces


def _replace_auto(config: Config, **meanings: Any) -> Config:
    """The config with values in place of auto."""
    return dataclasses.replace(config, **{name: x for name, x in meanings.items() if getattr(config, name) == "auto"})
