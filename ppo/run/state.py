"""The content of a checkpoint: all that a run needs to continue as if it had not stopped."""

from functools import partial

import torch
from torch import Tensor

from ppo.config.config import Config
from ppo.config.schedule import scheduled
from ppo.config.settings import RunSettings
from ppo.errors import CallbackError, CheckpointError
from ppo.run.changes import forget_changes
from ppo.run.checkpoint import Checkpoints, describe_mismatch, load_newest, newest_first
from ppo.run.folder import RunFolder, versions
from ppo.system.state_dict import State

# Their number or size varies during a run, so they cannot be compared with those of a new run.
NOT_COMPARED = ("optimizer.", "open_episodes.", "episodes.recent", "acting.", "generator.")


def snapshot(parts, monitor) -> State:
    """Return the state of a run between two iterations, with the environments of all ranks.

    parts: ppo.components.Components; monitor: ppo.monitor.Monitor. The arrays and tensors
    are not copies.
    """
    settings = parts.settings.to_save()
    return {
        **parts.state_dict(),
        **monitor.state_dict(),
        "config": {name: settings[name] for name in Config.names(scope="training")},
        "spaces": parts.saved_spaces,
        "made_with": made_with(parts.settings),
    }


def resume(parts, monitor, checkpoints: Checkpoints, run: RunFolder) -> list[str]:
    """Restore a new run from its newest intact checkpoint; return notes for the user.

    That is the one which its settings came from, unless another process has saved a newer one
    before this one had the folder. Raises CheckpointError if there is none, and as restore and
    forget_changes do.
    """
    found = parts.settings.checkpoint
    newest = newest_first(checkpoints.folder)
    if not found or not newest or newest[0].name != found[0].name:
        found = None
    path, state = parts.ranks.broadcast_from_rank0(
        lambda: found or load_newest(checkpoints.folder, partial(run.event, "checkpoint_damaged"))
    )
    differences = restore(parts, monitor, state)
    changed = [text.partition("=")[0] for text in differences]
    parts.ranks.broadcast_from_rank0(partial(forget_changes, run.path, changed))
    checkpoints.take_ownership(path, state)
    run.iteration = parts.iteration
    run.event("resumed", checkpoint=path.name, step=parts.step, differences=differences)
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
    saved = {**Config.defaults(), **state["config"]}
    changed = [name for name in Config.names(scope="training") if saved[name] != present[name]]
    if fixed := [name for name in changed if name in Config.names(fixed=True)]:
        wrong = "; ".join(f"{name}={saved[name]}, not {present[name]}" for name in fixed)
        raise CheckpointError(
            f"the run was begun with {wrong}: leave these flags out, or begin another run"
        )
    return {name: f"{name}={present[name]} instead of {saved[name]}" for name in changed}


def restore(parts, monitor, state: State) -> list[str]:
    """Restore a new run from a saved state.

    Returns how the present settings, versions and threads differ from those of the state, as texts
    "name=value instead of value". Raises CheckpointError if the state is of another environment or
    model, or was made with other settings that cannot change.
    """
    changed = compare_settings(parts.settings, state)
    if problems := _describe_mismatch(parts, state):
        raise CheckpointError(f"the checkpoint is of another environment or network: {problems}")
    try:
        made_before = dict(state["made_with"])
        parts.load_state_dict(state)
        if "learning_rate" in changed:  # an adaptive one would go on from the saved one
            parts.learner.learning_rate = scheduled(parts.config.learning_rate, 1.0)
        monitor.load_state_dict(state)
    except (CallbackError, CheckpointError):
        raise
    except Exception as error:  # a state that does not fit may fail anywhere
        raise CheckpointError(
            f"the checkpoint cannot be resumed ({error}): give another"
        ) from error
    differences = [*changed.values()]
    for name, version in made_with(parts.settings).items():
        before = made_before.get(name, version)
        if before != version:
            differences.append(f"{name}={version} instead of {before}")
    return differences


def _describe_mismatch(parts, state: State) -> str:
    """Describe the first tensors of a state that do not fit the parts; "" if all do."""
    wanted = parts.learning_state()
    for name, table in parts.environment_state().items():  # of this rank; a state: of all
        row = torch.as_tensor(table[:1])
        wanted[name] = row.expand(parts.config.num_envs, *row.shape[1:])
    wanted = {name: x for name, x in wanted.items() if not name.startswith(NOT_COMPARED)}
    for name, x in state.items():
        if name.startswith("optimizer.") and isinstance(x, Tensor) and x.numel() > 1:
            wanted[name] = parts.learner.weights.to(x.dtype)
    return describe_mismatch(state, wanted)


def made_with(settings: RunSettings) -> State:
    """Return what a run's exact results depend on besides the settings that are saved: versions,
    the number of torch's threads, and what "auto" stands for in flags that are saved as "auto"."""
    given, config = settings.given, settings.config
    used = {
        "device": torch.device(config.device).type,  # ranks on CUDA have one each
        "precision": config.precision,
        "inference": config.inference,
    }
    auto = {name: value for name, value in used.items() if getattr(given, name) == "auto"}
    return {**versions(), "threads": torch.get_num_threads(), **auto}
