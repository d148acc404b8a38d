"""Take a run's state for a checkpoint, and restore it."""

from copy import copy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ppo.algorithm.flat_weights import stepped_copy, try_moments
from ppo.config.config import BEFORE_FLAGS, Config, settings_to_keep
from ppo.config.gone import describe_gone
from ppo.config.schedule import scheduled
from ppo.config.settings import RunSettings
from ppo.envs.errors import EnvironmentUnavailable, WorkerError
from ppo.envs.spaces import scaled_bounds
from ppo.errors import CheckpointError, describe
from ppo.guard import guard
from ppo.run.checkpoint import describe_mismatch, load_newest, newest_first
from ppo.run.folder import RunFolder, describe_run, versions
from ppo.run.saving import Checkpoints
from ppo.run.trusted_settings import may_be_same
from ppo.system.signals import RAISED_BY_SIGNALS
from ppo.system.state_dict import State, add_prefix, select_prefix

if TYPE_CHECKING:
    from torch.optim import Optimizer  # heavy

    from ppo.algorithm.adam import Adam
    from ppo.components import Components
    from ppo.monitor import Monitor

# How the names begin of what a state may lack, as it depends on the machine or on flags that may
# change, or is newer than the state, and of what may have any number of rows.
OPTIONAL = ("generator.cuda", "episodes.counts", "episodes.waiting")
ANY_LENGTH = ("episodes.recent",)


def snapshot(parts: "Components", monitor: "Monitor") -> State:
    """Return the state of a run between two iterations, with the environments of all processes.

    The arrays and tensors are not copies.
    """
    return {
        **parts.state_dict(),
        **monitor.state_dict(),
        "config": settings_to_keep(parts.settings.to_save()),
        "spaces": parts.saved_spaces,
        "made_with": made_with(parts.settings),
    }


def resume(
    parts: "Components", monitor: "Monitor", checkpoints: Checkpoints, folder: RunFolder
) -> list[str]:
    """Restore a new run from its newest intact checkpoint; return notes for the user.

    That is the one which its settings came from, unless another process has saved a newer one
    before this one had the folder. Raises CheckpointError if there is none, and as restore does.
    """
    found = parts.settings.checkpoint
    newest = newest_first(checkpoints.folder)
    if not found or not newest or newest[0].name != found[0].name:
        found = None
    path, state = parts.peers.call_in_first(
        lambda: (
            found or load_newest(checkpoints.folder, partial(folder.event, "checkpoint_damaged"))
        )
    )
    differences = restore(parts, monitor, state, path)
    checkpoints.take_ownership(path, state)
    folder.iteration = parts.iteration
    folder.event(
        "resumed",
        checkpoint=path.name,
        step=parts.step,
        differences=differences,
        settings=describe_run(parts.config, parts.settings.auto),
    )
    notes = [f"resumes after step {parts.step:,}, from {path}"]
    if parts.iteration >= parts.config.iterations:
        notes.append("the run had ended: give a greater --total_steps to train on")
    if differences:
        notes.append(f"resume is not exact: {', '.join(differences)}")
    return notes


def compare_settings(settings: RunSettings, state: State) -> dict[str, str]:
    """Return how settings differ from those of a saved run: "name=value instead of value", by name.

    Raises CheckpointError if it has none, or others of those that cannot change."""
    if not isinstance(state.get("config"), dict):
        raise CheckpointError("the checkpoint has no config: give another")
    present = settings.to_save()
    saved = {**Config.defaults(), **BEFORE_FLAGS, **state["config"]}
    if not scaled_bounds(settings.spaces.actions):  # then it makes no difference
        saved["scale_actions"] = present["scale_actions"]
    changed = [name for name in Config.names(scope="training") if saved[name] != present[name]]
    if may_be_same(str(saved["env_name"]), present["env_name"]):
        changed = [name for name in changed if name != "env_name"]
    if fixed := [name for name in changed if name in Config.names(fixed=True)]:
        wrong = "; ".join(f"{name}={saved[name]}, not {present[name]}" for name in fixed)
        raise CheckpointError(
            f"the run was begun with {wrong}: leave these flags out, or begin another run"
        )
    differences = {name: f"{name}={present[name]} instead of {saved[name]}" for name in changed}
    return differences | describe_gone(saved)


def restore(
    parts: "Components", monitor: "Monitor", state: State, path: Path | str = "the checkpoint"
) -> list[str]:
    """Restore a new run from a saved state. path: of its file, for messages.

    Returns how the present settings, versions and threads differ from those of the state, as texts
    "name=value instead of value". Raises CheckpointError, before anything is restored, if the state
    is not such as this run would save: of another environment or model, malformed, or made with
    other settings that cannot change; also if the user's own learner or callback refuses it.
    """
    changed = compare_settings(parts.settings, state)
    stepped = stepped_copy(parts.learner.optimizer)
    if problems := _describe_mismatch(parts, monitor, state, stepped):
        raise CheckpointError(
            f"{path} is malformed, or of another network or environment ({problems}): give another"
        )
    try:
        moments = select_prefix("optimizer", state)
        if stepped and moments:
            try_moments(stepped, moments)
        parts.load_state_dict(state)
        if "learning_rate" in changed:  # an adaptive one would go on from the saved one
            parts.learner.learning_rate = scheduled(parts.config.learning_rate, 1.0)
        monitor.load_state_dict(state)
    except (CheckpointError, *RAISED_BY_SIGNALS):
        raise
    except BaseException as error:  # a state that does not fit may fail anywhere
        raise CheckpointError(
            f"{path} cannot be resumed ({describe(error)}): give another"
        ) from error
    differences = [*changed.values()]
    for name, version in made_with(parts.settings).items():
        before = state["made_with"].get(name, version)
        if before != version:
            differences.append(f"{name}={version} instead of {before}")
    return differences


def _describe_mismatch(
    parts: "Components", monitor: "Monitor", state: State, stepped: "Optimizer | Adam | None"
) -> str:
    """Describe the first entries of a state that are not such as a new run would save; "" if all
    are. Those of callbacks may be any. stepped: the optimizer after a step, or None."""
    wanted = {**parts.state_dict(), **monitor.episodes.state_dict(), "made_with": {}}
    if stepped and select_prefix("optimizer", state):
        wanted |= add_prefix("optimizer", stepped.state_dict()["state"].get(0, {}))
    optional = (*OPTIONAL, *(f"{name}." for name in parts.extension_parts))
    any_length = (
        f"{name}.{table}"
        for name, part in parts.extension_parts.items()
        for table in part.any_length
    )
    compared = {
        name: value
        for name, value in wanted.items()
        if name in state or not name.startswith(optional)
    }
    return describe_mismatch(state, compared, (*ANY_LENGTH, *any_length))


def try_attributes(parts: "Components") -> None:
    """Make a step in an environment of a resumed run with the attributes that callbacks have set,
    as its first look had none. Raises CheckpointError if it fails."""
    if not (parts.env_attributes and parts.settings.checkpoint):
        return
    path = parts.settings.checkpoint[0]
    policy = parts.policy()
    policy.config = copy(policy.config)
    vars(policy.config).update(eval_env=None)
    try:
        guard().call("the environment", policy.config, policy.evaluate, 1, max_steps=1)
    except (EnvironmentUnavailable, WorkerError) as error:
        raise CheckpointError(
            f"{path} has env_attributes that its environment cannot bear ({error}): give another"
        ) from error


def made_with(settings: RunSettings) -> State:
    """Return what a run's exact results depend on besides the settings that are saved: versions,
    the number of torch's threads, and what "auto" stands for in flags that are saved as "auto"."""
    given, config = settings.given, settings.config
    used = {
        "device": torch.device(config.device).type,
        "precision": config.precision,
        "inference": config.inference,
    }
    auto = {name: value for name, value in used.items() if getattr(given, name) == "auto"}
    return {**versions(), "threads": torch.get_num_threads(), **auto}
