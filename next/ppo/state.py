"""The state of a run: taken once, when an iteration is whole, and the only thing ever saved."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import torch

from ppo.callbacks import named
from ppo.checkpoint import arrays, copied, select
from ppo.config import as_json, flag_names
from ppo.envs.make import find_spec
from ppo.envs.spaces import to_json
from ppo.envs.worker import carried_tables
from ppo.errors import CheckpointError, ConfigError, reason
from ppo.imports import import_named, is_path

if TYPE_CHECKING:
    from ppo.run import Run

# Flags that name code. A class of the first is imported again by a run that is resumed.
ENVIRONMENTS = {"env_name": gymnasium.Env, "wrapper": gymnasium.Wrapper, "model": torch.nn.Module}
TOLD_AGAIN = ("learner", "callback")


def take(run: "Run") -> dict[str, Any]:
    """Return a copy of the state of a run between two iterations."""
    parts = {
        "normalize_reward": run.normalize_reward.state_dict(),
        "episodes": run.episodes.state_dict(),
        "open_episodes": run.open_episodes.state_dict(),
        "next": {name: run.rollout.tables[name][-1] for name in _carried(run)},
        "generator": {"cpu": torch.get_rng_state()},
    }
    if run.spaces.layout.has_numbers:
        parts["normalize_observation"] = run.observation_statistics.state_dict()
    for name, callback in named(run.callbacks):
        parts[name] = callback.state_dict()
    state = {f"{part}.{key}": x for part, values in parts.items() for key, x in values.items()}
    state |= run.learner.state_dict()
    state |= {
        "iteration": run.iteration,
        "step": run.step,
        "seconds": run.seconds,
        "env_attributes": run.env_attributes,
        "resets": run.num_resets,
        "config": run.given,
        "spaces": [to_json(run.spaces.observations), to_json(run.spaces.actions)],
        "has_masks": run.spaces.has_masks,
    }
    try:
        return copied(state)
    except TypeError as error:
        raise ConfigError(
            f"the state of a callback cannot be saved ({reason(error)}): let state_dict() return "
            "tensors, arrays and JSON values"
        ) from error


def restore(run: "Run", state: Mapping[str, Any], path: Path) -> None:
    """Restore a state in a new run. Raises CheckpointError, with the name of its file, if it does
    not fit."""
    try:
        run.learner.load_state_dict(dict(state))
        run.publish_weights()
        numbers = arrays(state)
        if own := select("normalize_observation", numbers):
            run.observation_statistics.load_state_dict(own)
        run.normalize_reward.load_state_dict(select("normalize_reward", numbers))
        run.episodes.load_state_dict(select("episodes", numbers))
        run.open_episodes.load_state_dict(select("open_episodes", numbers))
        for name, row in select("next", numbers).items():
            run.rollout.tables[name][-1] = row
        run.num_resets[:] = numbers["resets"]
        run.iteration = int(state["iteration"])
        run.seconds = float(state["seconds"])
        run.env_attributes = dict(state["env_attributes"])
        torch.set_rng_state(state["generator.cpu"])
        for name, callback in named(run.callbacks):
            if own := select(name, state):
                callback.load_state_dict(own)
    except (CheckpointError, LookupError, TypeError, ValueError, RuntimeError) as error:
        what = str(error) if isinstance(error, CheckpointError) else reason(error)
        raise CheckpointError(f"{path} cannot be resumed: {what}") from error


def _carried(run: "Run") -> list[str]:
    return carried_tables(run.spaces.layout)


def saved_flags(
    path: Path, state: Mapping[str, Any], given: Mapping[str, Any], *, to_train: bool
) -> dict[str, Any]:
    """Return the flags of a saved run, to which those that are given are added; code that a file
    may not name by itself must be given again. to_train: whether to resume the run.

    Raises CheckpointError, also if the run began with other values of flags that cannot change."""
    try:
        saved = {name: x for name, x in state["config"].items() if name in flag_names()}
    except (LookupError, AttributeError) as error:
        raise CheckpointError(f"{path} is not the checkpoint of a run") from error
    if to_train:
        for name in flag_names("fixed"):
            now = as_json(given[name]) if name in given else saved[name]
            if name == "env_name" and isinstance(now, str) and not is_path(now):
                now = find_spec(now, {}).id
            if now != saved[name]:
                raise CheckpointError(
                    f"{path}: the run began with {name}={saved[name]}, which cannot change: leave "
                    f"--{name} out, or begin another run"
                )
    named = [x for x in (*ENVIRONMENTS, *TOLD_AGAIN) if x not in given]
    if repeat := [x for x in named if not _may_import(x, saved[x], path)]:
        flags = " ".join(f"--{name}={x}" for name in repeat for x in _listed(saved[name]))
        raise CheckpointError(
            f"{path} names code that a file is not trusted to name: repeat it, as in "
            f"ppo --resume={path.parent.parent} {flags}"
        )
    return {**saved, **given}


def _may_import(name: str, saved: Any, path: Path) -> bool:
    """Return whether what a checkpoint names may be imported: nothing, or classes of environments,
    wrappers and networks outside of the run's folder."""
    for text in _listed(saved):
        if not is_path(text) or text.startswith("torch.optim"):
            continue
        place = text.rpartition(":")[0]
        is_inside = path.parent.parent.resolve() in Path(place).resolve().parents
        if name in TOLD_AGAIN or is_inside:
            return False
        try:
            found = import_named(text.partition("(")[0], name)
        except ConfigError as error:
            raise CheckpointError(f"{path}: {error}") from error
        if not (isinstance(found, type) and issubclass(found, ENVIRONMENTS[name])):
            return False
    return True


def _listed(value: Any) -> list[str]:
    return [x for x in value if isinstance(x, str)] if isinstance(value, list) else [str(value)]
