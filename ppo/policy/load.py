"""Load a policy from a checkpoint, and check the checkpoint's settings before using them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from ppo.config.config import Config, folder_to_resume
from ppo.config.flags import Settings
from ppo.config.resolve import resolve, tuned_config, with_tuned
from ppo.envs.env_factories import EnvObject, as_env_name
from ppo.envs.isolation import ISOLATION
from ppo.errors import CheckpointError, ConfigError
from ppo.models import make_actor
from ppo.models.actor_critic import named_tensors, to_vector
from ppo.models.numpy_mlp import layout_of
from ppo.policy.build import new_model, new_normalizer
from ppo.policy.policy import Policy
from ppo.run.checkpoint import describe_mismatch, load, load_newest
from ppo.run.reader import read_optional
from ppo.system.output import show
from ppo.system.state_dict import State, add_prefix, select_prefix

HARMLESS = ("torch.optim", "gymnasium.wrappers")  # modules that any checkpoint may import from


def load_policy(path: str | Path, env_name=None, model: str | None = None, **changes) -> Policy:
    """Load the policy of a checkpoint. path: its file.

    env_name, model, wrapper: repeat them if they are import paths, since a file alone is not
    trusted to name code, and env_name if it is a class or function; changes: flags with other
    values than the run's, such as precision="float32". Raises CheckpointError if the file is
    damaged, if an import path is not repeated, or if the environment or model cannot be made or
    does not fit the file; ConfigError for a wrong value in changes; WorkerError if the environment
    raises."""
    path = Path(path)
    state = load(path)
    if env_name is not None:
        changes["env_name"] = env_name = as_env_name(env_name)
    repeated = {"env_name": env_name, "model": model, "wrapper": changes.get("wrapper")}
    # Schedules are left out: they may be functions, which a file cannot hold.
    config = saved_config(path, state, repeated, Config.names(schedules=()))
    return _restore_policy(path, state, replace(config, **{"eval_env": None, **changes}))


def saved_settings(run: Path, given: Settings) -> Settings:
    """Return the settings of a run to resume: those of its newest intact checkpoint, and those of
    scope "run" from its config.json, or with a warning none of these if one of them is not valid.

    given: flags, which must repeat import paths, classes and functions. Raises CheckpointError if
    there is no intact checkpoint, and as load_policy does."""
    path, state = load_newest(run / "checkpoints", lambda damage: None)
    repeated = {name: given.get(name) for name in Config.names(imports=True)}
    # A file holds neither functions nor classes.
    held = [name for name in Config.names() if not callable(given.get(name))]
    objects: Settings = {x: y for x, y in given.items() if isinstance(y, EnvObject)}
    config = saved_config(path, state, repeated, held)
    _restore_policy(path, state, replace(config, **objects))
    settings = state["config"]
    saved = read_optional(run / "config.json", dict, {})
    names = {*Config.names(scope="run")} - {"name", "run_dir", "resume"}
    watched = {name: saved[name] for name in names & saved.keys()}
    try:
        Config(**watched)
    except ConfigError as error:
        show(f"warning: {run / 'config.json'} is left out: {error}")
        return settings
    return settings | watched


def config_of(env, config: Config | None, eval_env, flags: Settings) -> Config:
    """Return the config that the arguments of ppo.trainer.train lead to: a given one with flags
    replaced, else that of the run to resume, else tuned_config's.

    Raises as saved_settings and tuned_config do, ConfigError for two Configs."""
    if eval_env is not None:
        flags = {**flags, "eval_env": as_env_name(eval_env)}
    if isinstance(env, Config) and config:
        raise ConfigError("train takes one Config: give the environment first, or only the Config")
    if isinstance(env, Config):
        config = replace(env, **flags)
    elif config:
        config = replace(config, env_name=as_env_name(env), **flags)
    elif folder := folder_to_resume(flags):
        ISOLATION.start()
        given = {**flags, "env_name": as_env_name(env)}
        config = with_tuned(given, saved_settings(folder, given))[0]
    else:
        config = tuned_config(env, **flags)
    if folder := folder_to_resume(vars(config)):
        config = replace(config, resume=str(folder), run_dir=None)
    return config


def saved_config(path: Path, state: State, repeated: Settings, needed: Sequence[str]) -> Config:
    """Return the needed settings of a checkpoint's run, checked as flags are.

    repeated: the user's own values of settings that may import code; an import path in the file is
    trusted only if the user has given the same. Raises CheckpointError for one that is not trusted,
    and for a setting that is not accepted.
    """
    settings = state.get("config")
    if not isinstance(settings, dict):
        raise CheckpointError(f"{path} has no config: give another")
    try:
        if unknown := settings.keys() - {*Config.names()}:
            raise ConfigError(f"{min(unknown)} is unknown")
        config = Config(**{name: settings[name] for name in settings.keys() & needed})
        for name in ("iteration", "step"):
            count = state.get(name)
            if not isinstance(count, int) or not 0 <= count < 2**53:
                raise ConfigError(f"{name}={count} is no count")
    except ConfigError as error:
        raise CheckpointError(
            f"{path} has settings that this version does not accept ({error}): give another"
        ) from error
    for name, given in repeated.items():
        for wanted in _texts(vars(config)[name]):
            if wanted.startswith("<") and not given:
                raise CheckpointError(
                    f"{path} is of the class or function {wanted}: give it again, by "
                    f"load_policy(path, env), train(env, ...) or --{name}=module:Name"
                )
            is_trusted = wanted in _texts(given) or isinstance(given, EnvObject)
            module = wanted.partition("(")[0].rpartition(":")[0]
            if module and module not in HARMLESS and not is_trusted:
                raise CheckpointError(
                    f"{path} would import {wanted}: if you trust it, repeat --{name}={wanted}"
                )
    return config


def _texts(setting) -> list[str]:
    """Return a setting, which may be a list, as a list of texts."""
    return setting if isinstance(setting, list) else [str(setting)]


def _restore_policy(path: Path, state: State, config: Config) -> Policy:
    """Make the policy of a checkpoint.

    The sizes that the settings imply are compared with the checkpoint's tensors before memory is
    allocated for them; a model of the user's own class is trusted. Raises CheckpointError if they
    do not fit.
    """
    try:
        config, spaces = resolve(replace(config, device="cpu", compile=False))
        shape = (config.num_envs, *spaces.observations.shape)
        if getattr(state.get("next.observations"), "shape", None) != shape:
            raise ConfigError(f"next.observations is missing, or not of shape {shape}")
        with torch.device("cpu" if ":" in config.model else "meta"):  # meta tensors take no memory
            network = new_model(config, spaces)
        normalize = new_normalizer(config, spaces)
        statistics = add_prefix("normalize_observation", vars(normalize.statistics))
        parameters = add_prefix("model", named_tensors(network))
        if problems := describe_mismatch(state, parameters | statistics):
            raise ConfigError(problems)
    except ValueError as error:
        raise CheckpointError(
            f"{path} is of another network or environment ({error}): give another"
        ) from error
    found = {name: state[name].numpy() for name in statistics}
    normalize.load_state_dict(select_prefix("normalize_observation", found))
    weights = to_vector(state[name] for name in parameters).numpy()
    rebuild = partial(new_model, config, spaces, to_act=True)
    actor = partial(make_actor, rebuild, layout_of(network))
    return Policy(config, spaces, weights, actor, normalize, state.get("env_attributes", {}))
