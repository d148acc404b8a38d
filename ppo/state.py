"""The state of a run: taken once, when an iteration is whole, and the only thing ever saved."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import gymnasium
import torch

from ppo.callbacks import named
from ppo.checkpoint import State, copied, select
from ppo.config import as_json, flag_names
from ppo.envs.make import find_spec
from ppo.envs.worker import carried_tables
from ppo.errors import CheckpointError, ConfigError, reason
from ppo.extras import FLAGS
from ppo.imports import import_named, is_path

if TYPE_CHECKING:
    from ppo.run import Run

# Flags that name code. Classes of these bases are imported again on resume; what the other flags
# name must be repeated by the user.
IMPORTED = {
    "env_name": gymnasium.Env,
    "eval_env": gymnasium.Env,
    "wrapper": gymnasium.Wrapper,
    "model": torch.nn.Module,
}
SCHEDULES = ("learning_rate", "clip_coef", "clip_value_coef", "entropy_coef")
TOLD_AGAIN = ("learner", "callback", *SCHEDULES)
CODE = (*IMPORTED, *TOLD_AGAIN)
SCRIPT = "__main__:"
# Prefixes of the entries of a state that belong to the policy; env: env_attributes.
POLICY = ("model.", "normalize_observation.", "config", "spaces", "has_masks", "env", "step")


def policy_state(run: "Run") -> State:
    """Return what a policy is made of: weights, statistics of observations, settings, spaces."""
    statistics = run.normalize.statistics.state_dict()
    return {
        **{name: x for name, x in run.learner.state_dict().items() if name.startswith("model.")},
        **{f"normalize_observation.{name}": x for name, x in statistics.items()},
        "config": run.given,
        "spaces": run.spaces.in_json,
        "has_masks": run.spaces.has_masks,
        "env_attributes": run.env_attributes,
        "step": run.step,
    }


def take(run: "Run") -> State:
    """Return a copy of the state of a run between two iterations."""
    state = policy_state(run) | run.learner.state_dict()
    for name, part in _parts_of(run).items():
        state |= {f"{name}.{key}": x for key, x in part.state_dict().items()}
    state |= {f"next.{x}": run.rollout.tables[x][-1] for x in carried_tables(run.spaces)}
    state |= {
        "generator.cpu": torch.get_rng_state(),
        "iteration": run.iteration,
        "seconds": run.seconds,
        "best": run.best,
        "resets": run.rollout.counts,
    }
    try:
        return copied(state)
    except TypeError as error:
        raise ConfigError(
            f"the state of a callback cannot be saved ({reason(error)}): let state_dict() return "
            "tensors, arrays and JSON values"
        ) from error


def restore(run: "Run", state: State, path: Path) -> None:
    """Restore a state in a new run. Raises CheckpointError, which names the file."""
    try:
        run.learner.load_state_dict(state)
        run.normalize.statistics.load_state_dict(select("normalize_observation", state))
        for name, part in _parts_of(run).items():
            if own := select(name, state):
                part.load_state_dict(own)
        run.load_state(state)
        torch.set_rng_state(torch.from_numpy(state["generator.cpu"]))
    except (CheckpointError, LookupError, TypeError, ValueError, RuntimeError) as error:
        what = str(error) if isinstance(error, CheckpointError) else reason(error)
        raise CheckpointError(f"{path} cannot be resumed: {what}") from error


def _parts_of(run: "Run") -> dict[str, Any]:
    return {
        "normalize_reward": run.normalize_reward,
        "episodes": run.episodes,
        "open_episodes": run.open_episodes,
        **named(run.callbacks),
    }


def saved_flags(path: Path, state: State, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a saved run's flags, overridden by those that are given. Raises CheckpointError."""
    try:
        known = {*flag_names(), *FLAGS}
        saved = {name: x for name, x in state["config"].items() if name in known}
        for name in IMPORTED:
            if name in saved:
                saved[name] = _found(saved[name])
    except (LookupError, AttributeError) as error:
        raise CheckpointError(f"{path} is not the checkpoint of a run") from error
    return {**saved, **given}


def _found(code: Any) -> Any:
    """Return what a setting names if it is of the user's script, which workers do not run."""
    if isinstance(code, list):
        return [*map(_found, code)]
    if not str(code).startswith(SCRIPT):
        return code
    return getattr(sys.modules["__main__"], code.removeprefix(SCRIPT), code)


def check_code(path: Path, state: State, given: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raise CheckpointError if flags of these names, not given, name code that only a user may."""
    repeated = ""
    for name in [x for x in names if x not in given]:
        saved = state["config"].get(name)
        texts = [str(x) for x in saved] if isinstance(saved, list) else [str(saved)]
        if not all(_may_import(name, text, path) for text in texts):
            repeated += "".join(f" --{name}={quote(text)}" for text in texts)
    if repeated:
        raise CheckpointError(
            f"{path} refers to code that is not imported by a checkpoint alone: pass "
            f"again{repeated}"
        )


def _may_import(name: str, text: str, path: Path) -> bool:
    """Return whether what a checkpoint names may be imported: nothing, or classes of environments,
    wrappers and networks outside of the run's folder."""
    if not is_path(text) or text.startswith(("linear:", "adaptive:")):
        return True
    place = text.partition("(")[0].rpartition(":")[0]
    folder = path.resolve().parent
    if folder.name == "checkpoints":
        folder = folder.parent
    file = place if place.endswith(".py") else place.replace(".", "/")
    is_inside = any(folder in Path(x, file).resolve().parents for x in (".", *sys.path))
    if name in TOLD_AGAIN or is_inside:
        return False
    try:
        if name in ("env_name", "eval_env"):
            found: Any = find_spec(text).entry_point  # a text for an id that the module registers
        else:
            found = import_named(text.partition("(")[0], name)
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}: give --{name}=file.py:Name") from error
    is_class = isinstance(found, type) and issubclass(found, IMPORTED[name])
    return is_class or isinstance(found, str)


def check_fixed(path: Path, state: State, given: Mapping[str, Any]) -> None:
    """Raise CheckpointError if a run began with another value of a flag that cannot change."""
    for name in [x for x in flag_names("fixed") if x in given]:
        now = as_json(given[name])
        saved = state["config"].get(name)
        if name == "env_name" and isinstance(now, str) and not is_path(now):
            now = find_spec(now).id
        was = str(saved)
        own_name = str(now).rpartition(":")[2]
        is_moved = SCRIPT in was and was.endswith(own_name)  # others name a script by its file
        if now != saved and not is_moved:
            raise CheckpointError(
                f"{path}: the run was started with {name}={saved}, which cannot change: remove "
                f"--{name}, or start another run"
            )
