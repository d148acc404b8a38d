"""What a checkpoint holds: all that a run needs to continue as if it had never stopped."""

import platform
from collections.abc import Mapping
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

from ppo.config.config import Config
from ppo.errors import CheckpointError
from ppo.run.checkpoint import Checkpoints, load_newest
from ppo.run.folder import RunFolder

# There are more or fewer of these each time, so they cannot be compared with those of a new run.
VARYING = ("optimizer.", "open_episodes.", "episodes.recent", "acting.")


def snapshot(parts: Any, monitor: Any) -> dict[str, Any]:
    """Return the state of a run between two iterations, with the environments of all ranks.

    parts: ppo.components.Components; monitor: ppo.monitor.Monitor.
    """
    config = parts.config.__getstate__()
    watched = Config.names(scope="run")
    return {
        **parts.state_dict(),
        **monitor.state_dict(),
        "config": {name: value for name, value in config.items() if name not in watched},
        "made_with": made_with(),
    }


def resume(parts: Any, monitor: Any, checkpoints: Checkpoints, run: RunFolder) -> list[str]:
    """Bring a new run to the state of its newest intact checkpoint; return notes for the user.

    Raises CheckpointError if there is none, and as restore does.
    """
    on_damage = partial(run.event, "checkpoint_damaged")
    path, state = parts.ranks.broadcast_from_rank0(
        lambda: load_newest(checkpoints.folder, on_damage)
    )
    differences = restore(parts, monitor, state)
    checkpoints.adopt(state)
    run.iteration = parts.iteration
    run.event("resumed", checkpoint=path.name, step=parts.step, differences=differences)
    notes = [f"resumes after step {parts.step:,}, from {path}"]
    if differences:
        notes.append(f"resume is not exact: {', '.join(differences)}")
    return notes


def restore(parts: Any, monitor: Any, state: Mapping[str, Any]) -> list[str]:
    """Bring a new run to a saved state.

    Returns how the present settings and versions differ from those of the state. Raises
    CheckpointError if it is of another environment or model, or was made with other fixed settings.
    """
    present = parts.config.__getstate__()
    saved = {**Config().__getstate__(), **state["config"]}  # of older versions flags are missing
    watched = Config.names(scope="run")
    changed = [
        name for name, value in present.items() if name not in watched and saved[name] != value
    ]
    fixed = [name for name in changed if name in Config.names(fixed=True)]
    if fixed:
        wrong = "; ".join(f"{name}={saved[name]}, not {present[name]}" for name in fixed)
        fix = "leave these flags out, or begin another run"
        raise CheckpointError(f"the run was begun with {wrong}: {fix}")
    if problems := sorted(_misfits(parts, state)):
        raise CheckpointError(
            f"the checkpoint is of another environment or network: {'; '.join(problems)}"
        )
    try:
        made_before = dict(state["made_with"])
        parts.load_state_dict(state)
        monitor.load_state_dict(state)
    except (LookupError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise CheckpointError(
            f"the checkpoint cannot be resumed ({error}): give another"
        ) from error
    differences = [f"{name}={present[name]} instead of {saved[name]}" for name in changed]
    for name, version in made_with().items():
        before = made_before.get(name)
        if before != version:
            differences.append(f"{name}={version} instead of {before}")
    return differences


def _misfits(parts: Any, state: Mapping[str, Any]) -> list[str]:
    """Say which tensors of a state are missing, or are not as those of the run's parts."""
    wanted = {
        name: torch.as_tensor(value)
        for name, value in parts.learning_state().items()
        if isinstance(value, (Tensor, np.ndarray, np.generic)) and not name.startswith(VARYING)
    }
    shapes = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in wanted.items()}
    for name, array in parts.environment_state().items():  # of this rank; the state has all ranks'
        tensor = torch.as_tensor(array)
        shapes[name] = ((parts.config.num_envs, *tensor.shape[1:]), tensor.dtype)
    problems = []
    for name, (shape, dtype) in shapes.items():
        found = state.get(name)
        if not isinstance(found, Tensor):
            problems.append(f"{name} is missing")
        elif (tuple(found.shape), found.dtype) != (shape, dtype):
            problems.append(f"{name} is {found.dtype} {tuple(found.shape)}, here {dtype} {shape}")
    num_weights = parts.learner.weights.numel()
    for name, tensor in state.items():
        if name.startswith("optimizer.") and tensor.numel() not in (1, num_weights):
            problems.append(f"{name} is {tensor.dtype} {tuple(tensor.shape)}")
    return problems


def made_with() -> dict[str, Any]:
    """Return what the bits of a run depend on beside its settings: versions and threads."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "gymnasium": gymnasium.__version__,
        "threads": torch.get_num_threads(),
    }
