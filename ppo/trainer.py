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

from envs.make import make_env, spaces_of
from envs.normalize import NormalizeObservation, NormalizeReward
from envs.pool import WorkerPool
from envs.seeding import Stream, integer_seed
from envs.shared import SharedArray
from envs.worker import Episode, Report, Worker, action_converter, environment_error
from models import choose_model, make_actor, make_model
from ppo import checkpoint
from ppo.config import Config, ConfigError
from ppo.evaluation import evaluate
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
    observation_space, action_space = spaces_of(config.env_name)
    config = resolve(config, observation_space)
    folder = create_run_folder(config)
    training = Training(config, observation_space, action_space)
    start = time.perf_counter()
    with (
        WorkerPool(training.make_worker, config.num_envs, int(config.num_workers)) as workers,
        Logger(config, folder, [*notes, f"run folder: {folder}"]) as logger,
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
        torch.set_num_threads(1)  # with small matrices, more threads would only wait for each other
        if config.torch_deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without which CUDA refuses
            torch.use_deterministic_algorithms(True)  # even False would import torch's whole compiler
        self.config, self.action_space = config, action_space
        seed, size = integer_seed(config.seed, Stream.MODEL), (config.hidden_size, config.share_trunk)
        self.new_model = partial(make_model, config.model, seed, observation_space, action_space, *size)
        self.model = self.new_model().to(config.device)
        self.learner = Learner(self.model, config)
        self.normalize_observation = NormalizeObservation(observation_space.shape, config.normalize_observations)
        self.normalize_reward = NormalizeReward(config.num_envs, config.gamma, config.normalize_rewards)
        self.iteration = self.step = self.num_episodes = 0
        self.recent: deque[Episode] = deque(maxlen=100)

        layout = Rollout.layout(config.num_steps, config.num_envs, observation_space, action_space)
        shared = {name: SharedArray(shape, dtype) for name, (shape, dtype) in layout.items()}
        self.rollout = Rollout(**{name: table.array for name, table in shared.items()})
        shared_weights = SharedArray(self.learner.weights.shape, np.float32)
        self.published = shared_weights.array
        self.published[:] = self.learner.weights.cpu()
        self.make_worker = partial(
            Worker,
            env_name=config.env_name,
            seed=config.seed,
            make_env=make_env,
            make_actor=partial(make_actor, self.new_model),
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
        batch = self.learner.make_batch(
            rollout,
            normalize(rollout.observations),
            self.normalize_reward(rollout.rewards, rollout.terminations | rollout.truncations),
            [(step, environment, normalize(last)) for step, environment, last in report.last_observations],
        )
        shuffle_seed = integer_seed(self.config.seed, Stream.SHUFFLE, self.iteration)
        metrics = self.learner.learn(batch, self.iteration, shuffle_seed)
        normalize.update(rollout.observations[:-1])
        self.published[:] = self.learner.weights.cpu()
        means = {f"{name}_mean": self._recent_mean(name) for name in ("episode_return", "episode_length")}
        return {"episodes": self.num_episodes, **means, **metrics}

    def summary(self, seconds: float) -> dict[str, Any]:
        """What the run came to, with an evaluation of the final policy: neither weights nor statistics change."""
        config = self.config
        actor, convert = make_actor(self.new_model, self.published), action_converter(self.action_space)
        seeds = [integer_seed(config.seed, Stream.EVALUATION, episode) for episode in range(config.eval_episodes)]
        envs = [make_env(config.env_name) for _ in seeds[: config.num_envs]]
        try:
            evaluation = evaluate(lambda inputs: convert(actor(self.normalize_observation(inputs), None)), envs, seeds)
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


def resolve(config: Config, observation_space: Any) -> Config:
    """The config with every auto replaced by what it means on this machine. Raises ModelMismatch if the model cannot
    read the observations, ConfigError if there is no such device."""
    # For an MLP a GPU would be the slower choice: it waits for one small matrix after another.
    device = "cpu" if config.device == "auto" else config.device
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"--device={device} cannot be used ({reason}): give --device=cpu") from error
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return dataclasses.replace(
        config,
        model=choose_model(config.model, observation_space),
        device=device,
        num_workers=min(config.num_envs, cores) if config.num_workers == "auto" else config.num_workers,
        clip_value_coef=config.clip_coef if config.clip_value_coef == "auto" else config.clip_value_coef,
    )
