"""A teacher: a frozen policy whose distributions the learner imitates."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from numpy import ndarray
from torch import Tensor

from ppo.algorithm.learner import Learner
from ppo.algorithm.rollout import Batch, Metrics, Rollout
from ppo.config.config import Config
from ppo.config.schedule import scheduled
from ppo.config.settings import RunSettings
from ppo.envs.normalize import NormalizeObservation
from ppo.envs.observations import some_parts
from ppo.envs.probe import Spaces
from ppo.errors import CheckpointError, ConfigError
from ppo.extras.transfer.flags import TeacherFlags
from ppo.models.actor_critic import ActorCritic, named_tensors
from ppo.models.distributions import TorchHead
from ppo.models.noise import EMPTY
from ppo.models.observation_parts import chosen_parts, parts_of
from ppo.parts import Part
from ppo.peers import Peers
from ppo.policy.factories import new_model
from ppo.policy.load import check_fits
from ppo.run.checkpoint import digest, find_checkpoint, load
from ppo.run.trusted_settings import as_checkpoint_error, check_scale, checked_settings
from ppo.system.state_dict import State, add_prefix

TEACHER = "teacher"  # the batch's table (T * N, W): parameters of the teacher's distributions
NUM_ROWS = 1024  # of observations that it reads at once
RESOLVED = ("model", "hidden_size", "share_trunk", "normalize_observations")


class Teacher:
    """The policy of --teacher, which reads --teacher_parts of a student's observations.

    Its environment is not made: it is given the student's observations as they are before they are
    normalised, and normalises them by its own statistics. spaces: the student's; state: the
    checkpoint in the file at path, of which nothing is imported but a model that the user has named
    as well. Raises ConfigError if it does not fit the student, CheckpointError if its settings
    cannot be used."""

    def __init__(self, config: Config, spaces: Spaces, path: Path, state: State) -> None:
        flags = TeacherFlags.of(config)
        self.name = flags.teacher
        self.digest = digest(state)
        self.read = PartsReader(spaces.observations, _names_of_parts(config, spaces.observations))
        spaces = spaces._replace(observations=self.read.space)
        own = _settings_of(config, path, state)
        self.normalize = _check_fits(config, RunSettings(own, own, spaces, {}), state)
        self.model = new_model(own, spaces, to_act=config.device == "cpu")
        with torch.no_grad():
            for name, tensor in add_prefix("model", named_tensors(self.model)).items():
                tensor.copy_(state[name])
        self.model.to(config.device).prepare_to_act()

    @torch.no_grad()
    def __call__(self, rollout: Rollout, to_device: Callable[[ndarray], Tensor]) -> Tensor:
        """Return the parameters (T * N, W) of its distributions in the states of a rollout, within
        the action masks.

        to_device: makes a tensor of an array, where the models are."""
        num_rows = rollout.rewards.size
        tables = (rollout.observations[:-1], rollout.action_masks[:-1])
        flat = [table.reshape(num_rows, *table.shape[2:]) for table in tables]
        found = []
        for first in range(0, num_rows, NUM_ROWS):
            rows, allowed = (table[first : first + NUM_ROWS] for table in flat)
            inputs = (self.normalize(self.read(rows)), EMPTY)  # without states
            distribution, *_ = self.model.act(*map(to_device, inputs))
            if allowed.size:
                distribution = distribution.masked(to_device(allowed))
            found.append(distribution.parameters())
        return torch.cat(found)


class Distillation(Part):
    """Add teacher_coef * E[KL(teacher || policy)] to the loss, the mean over the student's own
    states (Schmitt et al. 2018, "Kickstarting Deep RL"; Ross et al. 2011, DAgger).

    With --distill, only the loss of the values stays beside it."""

    def __init__(self, learner: Learner, teacher: Teacher) -> None:
        self.learner = learner
        self.teacher = teacher
        learner.terms.append(divergence)
        learner.replaces_policy_loss = TeacherFlags.of(learner.config).distill

    def on_batch(self, rollout: Rollout, batch: Batch) -> None:
        batch[TEACHER] = self.teacher(rollout, self.learner.to_device)

    def state_dict(self) -> State:
        return {"sha256": self.teacher.digest}

    def load_state_dict(self, state: State) -> None:
        """Raises CheckpointError if the saved state is of a run with another teacher."""
        if state.get("sha256", self.teacher.digest) != self.teacher.digest:
            raise CheckpointError(
                f"--teacher={self.teacher.name} is not what the run was begun with: give the same "
                "checkpoint, as a file if its run has gone on since"
            )


def divergence(
    learner: Learner, minibatch: Batch, distribution: Any, values: Tensor
) -> tuple[Tensor, Metrics]:
    """Return the term of the loss, and its metric."""
    found = distribution.kl_from(minibatch[TEACHER]).mean()
    coefficient = scheduled(TeacherFlags.of(learner.config).teacher_coef, learner.remaining)
    return coefficient * found, {"teacher_kl": found.detach()}


class PartsReader:
    """Take some parts out of flattened observations. whole: their space; names: of the parts.

    space: that of the result, as an environment that shows these parts only would have it."""

    def __init__(self, whole: Box, names: list[str]) -> None:
        self.whole: Any = whole
        self.space: Any = whole
        if len(names) < len(parts_of(whole)):
            self.space = some_parts(whole, names)

    def __call__(self, rows: ndarray) -> ndarray:
        """Return rows (B, *space) of observations (B, *whole)."""
        if self.space is self.whole:
            return rows
        found = np.zeros((len(rows), *self.space.shape), self.space.dtype)
        columns = found.reshape(len(rows), -1)
        for name, place in self.space.places.items():
            columns[:, place] = rows[:, self.whole.places[name]].view(self.space.dtype)
        return found


def load_teacher(config: Config, spaces: Spaces, student: ActorCritic, peers: Peers) -> Teacher:
    """Load --teacher in all processes, for a student's model. Raises as Teacher does, ConfigError
    if there is no such run or file (CheckpointError where a run is resumed) or if the student's
    distribution has no closed form of the KL, CheckpointError if the file is damaged."""
    flags = TeacherFlags.of(config)
    teacher = Teacher(config, spaces, *peers.call_in_first(partial(_load, config)))
    if teacher.model.state_size:
        raise ConfigError(
            f"--teacher={flags.teacher} is recurrent: give one without a memory, such as an mlp, "
            "that reads more of the observations"
        )
    for head in (student.policy_head, teacher.model.policy_head):
        if isinstance(head, TorchHead):
            raise ConfigError(
                "--teacher needs distributions with a closed form of the KL, and torch's own have "
                "none here: use policy_head(...) in both models"
            )
    return teacher


def _load(config: Config) -> tuple[Path, State]:
    """Return the path and the state of the teacher's checkpoint."""
    flags = TeacherFlags.of(config)
    try:
        path = find_checkpoint(str(flags.teacher))
    except ConfigError as error:
        kind = CheckpointError if config.is_resumed else ConfigError
        raise kind(f"--teacher={error}") from error
    return path, load(path)


def _names_of_parts(config: Config, space: Box) -> list[str]:
    """Return the names of the parts that the teacher reads. Raises ConfigError for unknown ones."""
    flags = TeacherFlags.of(config)
    known = [*parts_of(space)]
    names = flags.teacher_parts.split(",") if flags.teacher_parts else known
    if not all(chosen_parts([name], known) for name in names):
        raise ConfigError(f"--teacher_parts={flags.teacher_parts}: give some of {', '.join(known)}")
    return chosen_parts(names, known)


def _settings_of(config: Config, path: Path, state: State) -> Config:
    """Return the settings of the teacher's network, to compute where the student does."""
    flags = TeacherFlags.of(config)
    # Schedules are left out, as where any policy is loaded.
    saved = checked_settings(path, state, Config.names(schedules=()))
    model = str(saved.get("model"))
    if ":" in model and model not in (config.model, flags.teacher_model):
        raise CheckpointError(
            f"{path} would import {model}: if you trust it, give --teacher_model={model}"
        )
    here = {"device": config.device, "precision": config.precision}
    with as_checkpoint_error(path):
        own = Config(**{**saved, **here, "log_std_init": 0.0})  # which its weights replace
        if unresolved := [name for name in RESOLVED if getattr(own, name) == "auto"]:
            raise ConfigError(f"it does not say what {unresolved[0]} was")
    return own


def _check_fits(config: Config, settings: RunSettings, state: State) -> NormalizeObservation:
    """Return the normaliser of a teacher of these settings and this state. Raises ConfigError if it
    cannot teach a student."""
    flags = TeacherFlags.of(config)
    observations = state.get("next.observations")  # a policy by itself has none
    shape = tuple(getattr(observations, "shape", ())[1:])
    here = settings.spaces.observations.shape
    if observations is not None and shape != here:
        raise ConfigError(
            f"--teacher={flags.teacher} reads observations of shape {shape}, and is given {here}: "
            "name the parts that it was trained on by --teacher_parts"
        )
    try:
        _, normalize = check_fits(settings, state)
    except ValueError as error:
        raise ConfigError(
            f"--teacher={flags.teacher} does not fit ({error}): give one that was trained with "
            "the same actions and observations"
        ) from error
    if settings.config.squash_actions != config.squash_actions:
        raise ConfigError(
            f"--squash_actions={config.squash_actions}: give that of the teacher, "
            f"{settings.config.squash_actions}"
        )
    check_scale(
        f"--teacher={flags.teacher}",
        vars(settings.config),
        config,
        settings.spaces,
    )
    return normalize
