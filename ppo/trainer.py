"""Training: collect, learn, log, save."""

import dataclasses
import os
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from envs.make import make_env, spaces_of
from envs.normalize import NormalizeObservation, NormalizeReward
from envs.pool import WorkerPool
from envs.seeding import Stream, integer_seed
from envs.shared import SharedArray
from envs.worker import Episode, Report, Worker, action_converter
from models import choose_model, make_actor, make_model
from models.actor import flatten_parameters
from ppo import checkpoint
from ppo.config import Config, ConfigError
from ppo.evaluation import evaluate
from ppo.learner import Learner
from ppo.logger import make_logger
from ppo.rollout import Rollout
from ppo.run import create_run_folder, write_json
from ppo.signals import StopSignals

EPISODES_AVERAGED = 100


class Interrupted(Exception):
    """A signal ended training, after its state was saved."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def train(config: Config, notes: Sequence[str] = ()) -> dict[str, Any]:
    """Train to the end, or until a signal. notes: what to tell first. Returns what summary.json holds.

    Raises ConfigError, EnvironmentUnavailable or ModelMismatch before anything is started; WorkerError if an
    environment fails; Interrupted after a signal.
    """
    observation_space, action_space = spaces_of(config.env_name)
    config = resolve(config, observation_space)
    folder = create_run_folder(config)
    training = Training(config, observation_space, action_space)
    start = time.perf_counter()
    with (
        StopSignals() as stop,
        WorkerPool(training.make_worker, config.num_envs, int(config.num_workers)) as workers,
        make_logger(config, folder) as logger,
    ):
        for note in (*notes, f"run folder: {folder}"):
            logger.note(note)
        for iteration in range(1, config.iterations + 1):
            began = time.perf_counter()
            report = workers.collect(iteration)
            collected = time.perf_counter()
            metrics = training.learn(report)
            learned = time.perf_counter()
            phases = {"seconds_collecting": collected - began, "seconds_learning": learned - collected}
            speed = {"seconds": learned - start, "steps_per_second": config.batch_size / (learned - began)}
            times = {name: round(value, 4) for name, value in {**speed, **phases}.items()}
            logger.log({"iteration": iteration, "step": training.step, **metrics, **times})
            if stop.received or iteration % config.checkpoint_every == 0 or iteration == config.iterations:
                training.save(folder / "checkpoints" / "last.safetensors")
            if stop.received:
                message = f"{stop.received.name} after step {training.step}: stopped, saved in {folder}"
                raise Interrupted(message, 128 + stop.received)
        seconds = time.perf_counter() - start
        summary = {
            "env_name": config.env_name,
            "seed": config.seed,
            "steps": training.step,
            "seconds": round(seconds, 3),
            "steps_per_second": round(training.step / seconds, 1),
            "episodes": training.num_episodes,
            "mean_return": training.recent_mean("episode_return"),
            "evaluation": training.evaluate(config.eval_episodes),
        }
        write_json(folder / "summary.json", summary)
        logger.finish(summary)
    return summary


class Training:
    """The parts of a run, wired together, with all of the state that a checkpoint keeps."""

    def __init__(
        self, config: Config, observation_space: spaces.Box, action_space: spaces.Box | spaces.Discrete
    ) -> None:
        torch.set_num_threads(1)  # with small matrices, more threads would only wait for each other
        if config.torch_deterministic:
            torch.use_deterministic_algorithms(True)  # even False would import torch's whole compiler
        self.config, self.action_space = config, action_space
        size, seed = (config.hidden_size, config.share_trunk), integer_seed(config.seed, Stream.MODEL)
        self.new_model = partial(make_model, config.model, observation_space, action_space, *size, seed)
        self.model = self.new_model().to(config.device)
        weights, gradients = flatten_parameters(self.model)
        self.learner = Learner(self.model, weights, gradients, config)
        self.normalize_observation = NormalizeObservation(observation_space.shape, config.normalize_observations)
        self.normalize_reward = NormalizeReward(config.num_envs, config.gamma, config.normalize_rewards)

        layout = Rollout.layout(config.num_steps, config.num_envs, observation_space, action_space)
        shared = {name: SharedArray(shape, dtype) for name, (shape, dtype) in layout.items()}
        self.rollout = Rollout(**{name: table.array for name, table in shared.items()})
        shared_weights = SharedArray(weights.shape, np.float32)
        self.published = shared_weights.array
        self.make_worker = partial(
            Worker,
            env_name=config.env_name,
            make_env=make_env,
            make_actor=partial(make_actor, self.new_model),
            normalize=self.normalize_observation,
            rollout=shared,
            weights=shared_weights,
            seed=config.seed,
        )
        self.iteration = self.num_episodes = 0
        self.recent: deque[Episode] = deque(maxlen=EPISODES_AVERAGED)
        self._publish()

    @property
    def step(self) -> int:
        """Environment steps learned from so far."""
        return self.iteration * self.config.batch_size

    def learn(self, report: Report) -> dict[str, Any]:
        """Learn from the rollout that workers have filled, and publish what was learned. Returns metrics."""
        self.iteration += 1
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
        self._publish()
        return {
            "episodes": self.num_episodes,
            "episode_return_mean": self.recent_mean("episode_return"),
            "episode_length_mean": self.recent_mean("length"),
            **metrics,
        }

    def recent_mean(self, what: str) -> float | None:
        """Mean of a field of the last 100 episodes; None before there is one."""
        return float(np.mean([getattr(episode, what) for episode in self.recent])) if self.recent else None

    def evaluate(self, num_episodes: int) -> dict[str, Any]:
        """Play that many episodes with the most likely actions; neither weights nor statistics change."""
        actor, convert = make_actor(self.new_model, self.published), action_converter(self.action_space)
        envs = [make_env(self.config.env_name) for _ in range(min(num_episodes, self.config.num_envs))]
        seeds = [integer_seed(self.config.seed, Stream.EVALUATION, episode) for episode in range(num_episodes)]
        normalize = self.normalize_observation
        result = evaluate(lambda observations: convert(actor(normalize(observations), None)), envs, seeds)
        for env in envs:
            env.close()
        return result

    def save(self, path: Path) -> None:
        """Write a checkpoint of all that the rest of the run depends on."""
        tensors = {f"model.{name}": parameter for name, parameter in self.model.named_parameters()}
        tensors |= {f"optimizer.{name}": tensor for name, tensor in self.learner.optimizer_state().items()}
        for name in ("normalize_observation", "normalize_reward"):
            statistics = vars(getattr(self, name).statistics)
            tensors |= {f"{name}.{key}": torch.tensor(value) for key, value in statistics.items()}
        tensors["normalize_reward.returns"] = torch.tensor(self.normalize_reward.returns)
        counters = {"iteration": self.iteration, "step": self.step, "episodes": self.num_episodes}
        checkpoint.save(path, tensors, {"config": dataclasses.asdict(self.config), **counters})

    def _publish(self) -> None:
        """Copy the weights to where the workers read them."""
        self.published[:] = self.learner.weights.cpu().numpy()


def resolve(config: Config, observation_space: spaces.Box) -> Config:
    """The config with every auto replaced by what it means on this machine.

    Raises ModelMismatch if the model cannot read the observations, ConfigError if there is no such device.
    """
    # For an MLP a GPU would be the slower choice: it waits for one small matrix after another.
    device = "cpu" if config.device == "auto" else config.device
    kind, _, index = device.partition(":")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"--device={device}: torch finds {torch.cuda.device_count()} CUDA devices; use --device=cpu")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("--device=mps: torch finds no Apple GPU; use --device=cpu")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return dataclasses.replace(
        config,
        model=choose_model(config.model, observation_space),
        device=device,
        num_workers=min(config.num_envs, cores) if config.num_workers == "auto" else config.num_workers,
        clip_value_coef=config.value_clip,
    )
