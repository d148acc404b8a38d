"""The parts of a run, wired together: environments, rollout, statistics, model and learner."""

from collections.abc import Callable
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pkgutil import resolve_name
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from ppo.algorithm.buffers import SharedBuffers
from ppo.algorithm.learner import Learner
from ppo.algorithm.memory_check import check_layers, describe_size
from ppo.algorithm.rollout import Batch, Metrics, Rollout
from ppo.config.config import Config
from ppo.config.flags import Settings
from ppo.config.gone import check_methods
from ppo.config.settings import RunSettings
from ppo.envs.forms import form_named
from ppo.envs.normalize import NormalizeReward
from ppo.envs.pool import WorkerPool
from ppo.envs.probe import Spaces
from ppo.envs.sampler import RolloutSampler
from ppo.envs.saved_spaces import save_spaces
from ppo.envs.seeding import Stream, integer_seed
from ppo.envs.worker import CARRIED_TABLES, Episode, RolloutInfo
from ppo.extensions import functions_of
from ppo.guard import guard
from ppo.models.actor_critic import ActorCritic, persistent_buffers, to_vector
from ppo.models.observation_parts import images_of
from ppo.parts import Part
from ppo.peers import Peers
from ppo.policy.factories import (
    actor_factory,
    describe_observations,
    new_model,
    new_normalizer,
)
from ppo.policy.load import check_fits
from ppo.policy.policy import Policy
from ppo.run.folder import fault_kinds
from ppo.run.resume import compare_settings
from ppo.run.trusted_settings import as_checkpoint_error
from ppo.system.hardware import available_cores, within_limits
from ppo.system.imports import import_class, make_named
from ppo.system.process import configure_process, generator_states, set_generator_states
from ppo.system.state_dict import State, add_prefix, select_prefix

# How the names of the tensors in a state begin that are numpy arrays here.
ARRAYS = ("normalize_", "next.", "episodes.")
MakeLearner = Callable[[ActorCritic, Config, Peers], Learner]


class Reports(NamedTuple):
    """What the environments of all processes report of a rollout, by their ids.

    episodes: those that have ended, in the order of their steps; faults: an environment, a kind of
    fault and how many there were; absent: the environments that have not begun an episode."""

    episodes: list[Episode]
    faults: list[tuple[int, str, int]]
    absent: list[int]


def make_learner(
    model: ActorCritic,
    config: Config,
    peers: Peers | None = None,
    own: type[Learner] | None = None,
) -> Learner:
    """Make the learner of a model. own: its class, by default that which --learner names. Raises
    ConfigError if it cannot be made."""
    if not own and config.learner != "auto":
        own = import_class("learner", config.learner, Learner)
    return make_named("learner", config.learner, own or Learner, model, config, peers)


def prepare_run(
    settings: RunSettings, peers: Peers, make_learner: MakeLearner
) -> tuple["Components", list[str]]:
    """Make the parts of a run; also return notes for the user.

    Raises ConfigError, or CheckpointError if the settings do not fit the checkpoint that they came
    with, and as extensions do."""
    config = settings.config
    spaces = settings.spaces
    peers.call_in_first(partial(_check_checkpoint, settings))
    parts = Components(settings, peers, make_learner)
    notes = describe_observations(config, spaces.observations)
    notes += describe_size(config, spaces, len(parts.learner.weights))
    if not config.is_resumed:
        notes += [note for prepare in functions_of("prepare") for note in prepare(parts)]
    return parts, notes


def _check_checkpoint(settings: RunSettings) -> None:
    """Raise CheckpointError if settings do not fit the checkpoint that they came with."""
    if settings.checkpoint:
        path, state = settings.checkpoint
        compare_settings(settings, state)
        with as_checkpoint_error(path):
            check_fits(settings, state, to_resume=True)


def prepare_process(config: Config, spaces: Spaces) -> None:
    """Set threads and seed of this process."""
    # With small matrices, or with copies to a GPU, more threads would only wait for each other.
    has_large_matrices = images_of(spaces.observations) and config.device == "cpu"
    num_threads = available_cores() if has_large_matrices else 1
    configure_process(num_threads, config.torch_deterministic)
    # For losses that draw random numbers.
    torch.manual_seed(integer_seed(config.seed, Stream.MODEL))


def acting_weights(learner: Learner) -> ndarray:
    """Return a float32 copy (P,) of what the policy acts with: weights, then persistent buffers."""
    buffers = persistent_buffers(learner.model).values()
    return to_vector([learner.weights, *buffers]).cpu().numpy()


@dataclass
class Components:
    """The parts of a run, with all state on which learning depends.

    Data goes one way: environments -> rollout -> make_batch -> learner -> behaviour weights.
    """

    settings: RunSettings
    peers: Peers = field(default_factory=Peers)
    make_learner: MakeLearner = make_learner
    iteration: int = 0

    def __post_init__(self) -> None:
        config = self.config
        spaces = self.spaces
        prepare_process(config, spaces)
        check_layers(config, spaces)
        self.env_ids = self.peers.ids(config.num_envs)  # of the environments that are here
        self.num_envs = len(self.env_ids)
        self.faults = dict.fromkeys(fault_kinds(), 0)
        self.env_attributes: State = {}  # of new episodes, by Run.set_env
        self.changes: Settings = {}  # from the next iteration on, by Run.change
        self.saved_spaces = save_spaces(spaces)  # for checkpoints
        self.model = new_model(config, spaces).to(config.device)
        self.learner = self.make_learner(self.model, config, self.peers)
        check_methods(self.learner)
        self.normalize_reward = NormalizeReward(
            self.num_envs, config.gamma, config.normalize_rewards
        )
        with within_limits("shared memory for rollouts", "num_envs or --num_steps"):
            self.normalize_observation = new_normalizer(config, spaces)
            self.buffers = SharedBuffers(config, spaces, self.learner, self.num_envs)
        self.extension_parts: dict[str, Part] = {}
        for make_parts in functions_of("parts"):
            self.extension_parts |= make_parts(self)
        self.learner.choose_backend()  # which depends on the terms that these parts have added
        self.publish_weights()
        # Workers and policies act on the CPU, whatever the learner's device is.
        self.make_actor = actor_factory(self.model, config, spaces)
        make_actor = self.make_actor
        if config.inference == "learner" and config.device != "cpu":
            make_actor = actor_factory(self.model, config, spaces, config.device)
        make_sampler = partial(
            RolloutSampler,
            make_actor=make_actor,
            weights=self.buffers.shared_weights,
            normalize=self.normalize_observation,
            seed=config.seed,
        )
        self.sampler = None
        if config.inference == "learner":  # which acts for all environments
            self.sampler = make_sampler(env_ids=self.env_ids, rollout=self.buffers.rollout)
        self.worker = resolve_name(form_named(spaces.form).worker)
        self.make_worker = partial(
            self.worker,
            config=config,
            make_sampler=None if self.sampler else make_sampler,
            shared_rollout=self.buffers.shared_rollout,
            episode_counts=self.buffers.shared_counts,
            env_ids=self.env_ids,
        )

    @property
    def config(self) -> Config:
        """The settings of the run, resolved."""
        return self.settings.config

    @property
    def spaces(self) -> Spaces:
        """The spaces of its environment."""
        return self.settings.spaces

    def change_settings(self, changes: Settings) -> None:
        """Take other values of flags that may change during a run, from the next update on."""
        self.settings = self.settings.with_changes(changes)
        self.learner.configure(self.config)

    def make_pool(self, **options: Any) -> WorkerPool:
        """Start the workers that step the environments. options: further ones of WorkerPool."""
        with within_limits("worker processes", "num_workers"):
            return WorkerPool(
                self.make_worker,
                self.num_envs,
                min(self.num_envs // self.spaces.team_size, int(self.config.num_workers)),
                deadlines=guard().deadlines(self.config),
                max_losses=self.config.max_losses,
                sampler=self.sampler,
                first_id=self.env_ids.start,
                team_size=self.spaces.team_size,
                steps_whole=self.worker.steps_whole,
                **options,
            )

    @property
    def rollout(self) -> Rollout:
        """The most recently collected rollout."""
        return self.buffers.rollout

    @property
    def step(self) -> int:
        """Number of environment steps so far, of all processes."""
        return self.iteration * self.config.rollout_size

    def finish_collect(self, iteration: int, info: RolloutInfo) -> Rollout:
        """Attach the workers' report to the rollout that they have filled, and update the
        bookkeeping of episodes; return the rollout."""
        self.iteration = iteration
        buffers = self.buffers
        buffers.episode_counts_at_rollout_end[:] = buffers.episode_counts
        self.normalize_reward.returns[info.reset_envs] = 0
        rollout = self.rollout
        rollout.info = info
        for part in self.extension_parts.values():
            part.on_rollout(rollout)
        return rollout

    def gather_reports(self, info: RolloutInfo) -> Reports:
        """Return what the environments report of a rollout, here and in other processes."""
        ids = self.env_ids
        episodes = [*info.episodes, *info.discarded]
        ended = [x._replace(environment=ids[x.environment]) for x in episodes]
        faults = [
            (ids[index], kind, count)
            for index, counts in info.faults.items()
            for kind, count in counts.items()
            if count
        ]
        absent = [ids[index] for index in np.flatnonzero(self.buffers.episode_counts == 0)]
        both = self.peers.gather((ended, faults, absent))
        return Reports(*(sorted(chain(*found)) for found in zip(*both, strict=True)))

    def make_batch(self, rollout: Rollout) -> Batch:
        """Normalise a rollout, and evaluate it under the weights that collected it."""
        rewards = self.scale_rewards(rollout)
        batch = self.learner.make_batch(rollout, self.normalize_observation, rewards)
        for part in self.extension_parts.values():
            part.on_batch(rollout, batch)
        return batch

    def scale_rewards(self, rollout: Rollout) -> ndarray:
        """Return the rewards (T, N) to learn from: their signs, or divided by statistics that
        include those of this rollout. Statistics of observations do not, see update."""
        if self.config.clip_rewards:
            return np.sign(rollout.rewards)
        return self.normalize_reward.update_and_scale(
            rollout.rewards, rollout.dones, self.peers.gather, rollout.is_present
        )

    @property
    def training_attributes(self) -> State:
        """What environments are set to for new episodes of training, by name."""
        found = dict(self.env_attributes)
        for part in self.extension_parts.values():
            found |= part.env_attributes()
        return found

    def take_changes(self) -> None:
        """Take over what callbacks have changed in the first process: attributes of environments,
        and settings."""
        attributes, changes = self.peers.call_in_first(lambda: (self.env_attributes, self.changes))
        self.env_attributes.update(attributes)
        if changes:
            self.change_settings(changes)
        self.changes = {}

    def update(self, rollout: Rollout, batch: Batch) -> Metrics:
        """Learn from a rollout and the batch that was made of it, and publish the new weights;
        return the learner's metrics."""
        with ExitStack() as stack:
            for part in self.extension_parts.values():
                stack.enter_context(part.on_update(batch, self.iteration))
            self.update_statistics(rollout)
            metrics = self.learner.update(batch, self.iteration)
        self.publish_weights()
        return {**metrics, **self.peers.metrics()}

    def update_statistics(self, rollout: Rollout) -> None:
        """Add a rollout to the statistics of observations, which did not change during it."""
        observations = rollout.of_present(rollout.observations[:-1])
        self.normalize_observation.update(observations, self.peers.gather)

    def publish_weights(self) -> None:
        """Copy the learner's weights to shared memory; the next rollout is collected by them."""
        for buffer in persistent_buffers(self.model).values():  # as DistributedDataParallel does
            buffer.copy_(self.peers.call_in_first(buffer.clone))
        self.buffers.behaviour_weights[:] = acting_weights(self.learner)

    def policy(self) -> Policy:
        """Return the current policy, with copies of weights and statistics."""
        return Policy(
            self.config,
            self.spaces,
            acting_weights(self.learner),
            self.make_actor,
            deepcopy(self.normalize_observation),
            dict(self.env_attributes),
        )

    def restore_environments(self, workers: WorkerPool) -> list[int]:
        """Restore the environments of a resumed run; return the ids of those of all processes whose
        open episode could not be restored, in which a new one began."""
        if not self.iteration:
            return []  # no episode was open; the first rollout begins them all
        restored = {
            index for part in self.extension_parts.values() for index in part.restore(workers)
        }
        lost = [id for index, id in enumerate(self.env_ids) if index not in restored]
        return [*chain(*self.peers.gather(lost))]

    def environment_state(self) -> State:
        """Return the state of this process's environments: arrays (n, ...) by name."""
        return {
            **add_prefix("next", {name: vars(self.rollout)[name][-1] for name in CARRIED_TABLES}),
            "episodes.begun": self.buffers.episode_counts_at_rollout_end,
            "normalize_reward.returns": self.normalize_reward.returns,
        }

    def learning_state(self) -> State:
        """Return the state that is the same in all processes."""
        state = {
            **self.learner.state_dict(),
            **add_prefix("normalize_observation", vars(self.normalize_observation.statistics)),
            **add_prefix("normalize_reward", vars(self.normalize_reward.statistics)),
            **add_prefix("generator", generator_states(self.config.device)),
            "iteration": self.iteration,
            "step": self.step,
            "faults": dict(self.faults),
            "env_attributes": self.env_attributes,
        }
        for name, part in self.extension_parts.items():
            state |= add_prefix(name, part.state_dict())
        return state

    def state_dict(self) -> State:
        """Return all state of the run, gathered from all processes."""
        states = self.peers.gather(self.environment_state())
        gathered = {name: np.concatenate([s[name] for s in states]) for name in states[0]}
        return {**self.learning_state(), **gathered}

    def load_state_dict(self, state: State) -> None:
        """Load a state dict. Raises whatever the learner and other parts do."""
        arrays = {
            name: x.numpy()
            for name, x in state.items()
            if isinstance(x, Tensor) and name.startswith(ARRAYS)
        }
        here = slice(self.env_ids.start, self.env_ids.stop)
        for name, part in self.extension_parts.items():
            part.load_state_dict(select_prefix(name, state))
        self.iteration = int(state["iteration"])
        self.faults |= {name: state["faults"].get(name, 0) for name in self.faults}
        self.learner.load_state_dict(state)
        self.env_attributes.update(state.get("env_attributes", {}))
        self.publish_weights()
        self.normalize_observation.load_state_dict(select_prefix("normalize_observation", arrays))
        self.normalize_reward.statistics.load_state_dict(select_prefix("normalize_reward", arrays))
        own = {name: arrays[name][here] for name in self.environment_state()}
        for name, row in select_prefix("next", own).items():
            vars(self.rollout)[name][-1] = row
        self.buffers.episode_counts[:] = own["episodes.begun"]
        self.buffers.episode_counts_at_rollout_end[:] = own["episodes.begun"]
        self.normalize_reward.returns = own["normalize_reward.returns"].copy()
        set_generator_states(select_prefix("generator", state), self.config.device)
