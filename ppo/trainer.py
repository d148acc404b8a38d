"""Training: collect, learn, log, save."""

import dataclasses
import os
import signal
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from envs.episodes import WHOLE_EPISODE
from envs.make import Preprocessing, atari_spec, make_env, spaces_of
from envs.normalize import NormalizeObservation, NormalizeReward
from envs.pool import WorkerPool
from envs.seeding import Stream, integer_seed
from envs.shared import SharedArray
from envs.worker import Episode, Report, Worker, action_converter, environment_error
from models import HIDDEN_SIZES, choose_model, make_actor, make_model
from ppo import checkpoint
from ppo.config import Config, ConfigError
from ppo.evaluation import evaluate
from ppo.hardware import available_cores, find_device, has_bfloat16, keep_memory
from ppo.learner import Learner
from ppo.logger import Logger
from ppo.rollout import Rollout
from ppo.run import create_run_folder, write_json
from ppo.signals import StopSignals


class Interrupted(Exception):
    """A signal ended training, after its state was saved."""

    def __init__(self, received: signal.Signals, step: int, folder: Path) -> None:
        super().__init__(f"{received.name} after step {step}: stopped, saved in {folder}")
        self.exit_code = 128 + received


def train(config: Config, notes: Sequence[str] = ()) -> dict[str, Any]:
    """Train to the end, or until a signal; returns what summary.json holds. notes: what to tell the user first. Raises
    ConfigError, EnvironmentUnavailable or ModelMismatch before the first iteration; WorkerError if an environment or a
    worker fails; Interrupted after a signal."""
    config, observation_space, action_space = resolve(config)
    training = Training(config, observation_space, action_space)
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
                speed = {"seconds": learned - start, "steps_per_second": config.batch_size / (learned - began)}
                phases = {"seconds_collecting": collected - began, "seconds_learning": learned - collected}
                logger.log({"iteration": iteration, "step": training.step, **speed, **metrics, **phases})
                if stop.received or iteration % config.checkpoint_every == 0 or iteration == config.iterations:
                    training.save(folder / "checkpoints" / "last.safetensors")
                if stop.received:
                    raise Interrupted(stop.received, training.step, folder)
        summary = training.summary(time.perf_counter() - start)
        write_json(folder / "summary.json", summary)
        logger.finish(summary)
    return summary


class Training:
    """The parts of a run, wired together, with all of the state that a checkpoint keeps."""

    def __init__(self, config: Config, observation_space: Any, action_space: Any) -> None:
        # With small matrices, more threads would only wait for each other.
        torch.set_num_threads(1 if config.model == "mlp" else available_cores())
        keep_memory()
        if config.torch_deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without which CUDA refuses
            torch.use_deterministic_algorithms(True)  # even False would import torch's whole compiler
        self.config, self.action_space = config, action_space
        make = partial(
            make_model,
            config.model,
            integer_seed(config.seed, Stream.MODEL),
            observation_space,
            action_space,
            hidden_size=config.hidden_size,
            share_trunk=config.share_trunk,
        )
        in_bfloat16 = config.precision == "bfloat16"
        self.model = make(in_bfloat16=in_bfloat16).to(config.device)
        # Those who act do so on the CPU, whatever the learner's device is.
        self.make_actor = partial(make_actor, partial(make, in_bfloat16=in_bfloat16 and has_bfloat16("cpu")))
        self.learner = Learner(self.model, config)
        self.normalize_observation = NormalizeObservation(observation_space.shape, bool(config.normalize_observations))
        self.normalize_reward = NormalizeReward(config.num_envs, config.gamma, bool(config.normalize_rewards))
        self.make_env = partial(make_env, config.env_name, preprocessing_of(config))
        self.iteration = self.step = self.num_episodes = 0
        self.recent: deque[Episode] = deque(maxlen=100)

        sizes = (config.num_steps, config.num_envs, self.model.num_shared_features)
        layout = Rollout.layout(*sizes, observation_space, action_space)
        shared = {name: SharedArray(shape, dtype) for name, (shape, dtype) in layout.items()}
        self.rollout = Rollout(**{name: table.array for name, table in shared.items()})
        shared_weights = SharedArray(self.learner.weights.shape, np.float32)
        self.published = shared_weights.array
        self.published[:] = self.learner.weights.cpu()
        self.make_worker = partial(
            Worker,
            env_name=config.env_name,
            seed=config.seed,
            make_env=self.make_env,
            make_actor=self.make_actor,
            normalize=self.normalize_observation,
            rollout=shared,
            weights=shared_weights,
        )

    def learn(self, report: Report) -> dict[str, Any]:
        """Learn from the rollout that workers have filled, and publish what was learned. Returns metrics."""
        self.iteration += 1
        self.step += self.config.batch_size
        self.num_episodes += len(report.episodes)
        self.recent.extend(report.episodes)
        rollout, normalize = self.rollout, self.normalize_observation
        clip, dones = self.config.clip_rewards, rollout.terminations | rollout.truncations
        batch = self.learner.make_batch(
            rollout,
            normalize(rollout.observations),
            np.sign(rollout.rewards) if clip else self.normalize_reward(rollout.rewards, dones),
            [(step, environment, normalize(last)) for step, environment, last in report.last_observations],
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
        if config.model == "mlp":
            return []
        sticky = f", sticky actions {config.sticky_actions}" if atari_spec(config.env_name) else ""
        threads = f", threads: {torch.get_num_threads()}" if config.device == "cpu" else ""
        return [
            f"images: frame skip {config.frame_skip}{sticky}, frame stack {config.frame_stack}",
            f"learner: {config.model} in {config.precision} on {config.device}{threads}",
        ]

    def summary(self, seconds: float) -> dict[str, Any]:
        """What the run came to, with an evaluation of the final policy: neither weights nor statistics change."""
        config = self.config
        actor, convert = self.make_actor(self.published), action_converter(self.action_space)
        seeds = [integer_seed(config.seed, Stream.EVALUATION, episode) for episode in range(config.eval_episodes)]
        envs = [self.make_env() for _ in seeds[: config.num_envs]]
        try:
            evaluation = evaluate(
                lambda inputs: convert(actor(self.normalize_observation(inputs), None)), envs, seeds, WHOLE_EPISODE
            )
        except Exception as error:
            raise environment_error(f"{config.env_name} in evaluation", error) from error
        for env in envs:
            env.close()
        run = {"env_name": config.env_name, "seed": config.seed, "steps": self.step}
        speed = {"seconds": round(seconds, 3), "steps_per_second": round(self.step / seconds, 1)}
        returns = {"mean_return": self._recent_mean("episode_return"), "evaluation": evaluation}
        return {**run, **speed, "episodes": self.num_episodes, **returns}

    def save(self, path: Path) -> None:
        """Write a checkpoint: weights, optimiser, statistics, config and counters."""
        parts: dict[str, dict[str, Any]] = {
            "model": dict(self.model.named_parameters()),
            "optimizer": self.learner.optimizer.state_dict()["state"][0],
            "normalize_observation": vars(self.normalize_observation.statistics),
            "normalize_reward": vars(self.normalize_reward.statistics) | {"returns": self.normalize_reward.returns},
        }
        tensors = {f"{part}.{name}": torch.as_tensor(x) for part, named in parts.items() for name, x in named.items()}
        counters = {"iteration": self.iteration, "step": self.step, "episodes": self.num_episodes}
        checkpoint.save(path, tensors, {"config": dataclasses.asdict(self.config), **counters})

    def _recent_mean(self, name: str) -> float | None:
        """Mean of a field of the last 100 episodes; None before there is one."""
        return float(np.mean([getattr(episode, name) for episode in self.recent])) if self.recent else None


def resolve(config: Config) -> tuple[Config, Any, Any]:
    """The config with every auto replaced by what it means here, and the spaces of observations and actions. Raises
    EnvironmentUnavailable, ModelMismatch if the model cannot read the observations, ConfigError if there is no such
    device or a flag means nothing for this environment."""
    atari = atari_spec(config.env_name)
    sticky = atari.kwargs.get("repeat_action_probability", "auto") if atari else "auto"
    given, config = config, _replace_auto(config, frame_skip=4 if atari else 1, sticky_actions=sticky)
    observation_space, action_space = spaces_of(config.env_name, preprocessing_of(config))
    model = choose_model(config.model, observation_space)
    images = model != "mlp"
    for name in () if atari else Preprocessing._fields[3 if images else 0 :]:
        if getattr(given, name) != getattr(Config, name):
            raise ConfigError(f"--{name} means nothing for {config.env_name}: leave it out, and a preset that sets it")
    if images and config.normalize_observations is True:
        raise ConfigError("--normalize_observations is for vectors: leave it out, images are scaled to [0, 1]")
    if not images and config.precision == "bfloat16":
        raise ConfigError("--precision=bfloat16 is for images: leave it out, the mlp would not gain by it")
    device = find_device(config.device, images)
    resolved = _replace_auto(
        dataclasses.replace(config, model=model, device=device),
        num_workers=min(config.num_envs, available_cores()),
        clip_value_coef=config.clip_coef,
        normalize_observations=not images,
        normalize_rewards=not images and not config.clip_rewards,
        hidden_size=HIDDEN_SIZES[model],
        share_trunk=images,
        precision="bfloat16" if images and has_bfloat16(device) else "float32",
    )
    return resolved, observation_space, action_space


def preprocessing_of(config: Config) -> Preprocessing:
    """What a run does with images."""
    return Preprocessing(*(getattr(config, name) for name in Preprocessing._fields))


def _replace_auto(config: Config, **meanings: Any) -> Config:
    """The config with values in place of auto."""
    return dataclasses.replace(config, **{name: x for name, x in meanings.items() if getattr(config, name) == "auto"})
