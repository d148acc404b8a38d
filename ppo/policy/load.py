"""Load a policy from a checkpoint."""

from functools import cache
from pathlib import Path
from typing import Any

from ppo.config.config import Config, is_function
from ppo.config.flags import Settings, check_values
from ppo.config.settings import RunSettings, settings_with
from ppo.envs.env_factories import EnvLike, as_env_name
from ppo.envs.env_kwargs import describe_wrappers
from ppo.envs.lookup import canonical_id
from ppo.envs.normalize import NormalizeObservation
from ppo.envs.saved_spaces import read_spaces
from ppo.errors import CheckpointError, ConfigError
from ppo.models.actor_critic import ActorCritic, named_tensors, to_vector
from ppo.policy.factories import actor_factory, empty_model, new_normalizer
from ppo.policy.policy import Policy
from ppo.run.checkpoint import describe_mismatch, find_checkpoint, load
from ppo.run.trusted_settings import as_checkpoint_error, checked_settings, untrusted
from ppo.system.output import show
from ppo.system.process import restored_process
from ppo.system.state_dict import State, add_prefix, select_prefix


def load_policy(
    path: str | Path,
    env_name: EnvLike | None = None,
    model: str | None = None,
    **changes: Any,
) -> Policy:
    """Load the policy of a checkpoint, or of a file of Policy.save.

    path: the file, or a run's folder, whose newest intact checkpoint is loaded.

    No environment is made: the file holds its spaces. env_name, model, wrapper: repeat them if they
    are import paths, since a file alone is not trusted to name code, and env_name if it is a class
    or function; the policy can make its environment only then. changes: flags with other values
    than the run's, such as precision="float32". Raises CheckpointError if the file is damaged, if
    the import path of a model is not repeated, or if the model cannot be made or does not fit the
    file; ConfigError for a wrong value in changes. A note names wrappers that change what the
    policy observes or does, and are no part of it."""
    policy = read_policy(path, env_name, model, **changes)
    if policy.spaces.wrappers:
        _show_once(f"note: {describe_wrappers(policy.spaces.wrappers)}")
    return policy


_show_once = cache(show)  # self-play loads a policy for each episode


@restored_process()
def read_policy(
    path: str | Path,
    env_name: EnvLike | None = None,
    model: str | None = None,
    **changes: Any,
) -> Policy:
    """Do the same without the note, for what plays in the environments that have the wrappers."""
    path = Path(path)
    if path.is_dir():
        path = find_checkpoint(str(path))
    state = load(path)
    values: Settings = {"eval_env": None, **changes, "device": "cpu"}
    if env_name is not None:
        env_name = as_env_name(env_name)
        values["env_name"] = canonical_id(env_name)
    values = check_values(Config, values)
    repeated = {"env_name": env_name, "wrapper": values.get("wrapper"), "model": model}
    held = state.get("config")
    saved = held if isinstance(held, dict) else {}
    # Schedules that were functions are left out, which a file cannot hold.
    needed = [name for name in Config.names() if not is_function(name, saved.get(name))]
    with as_checkpoint_error(path):
        saved = checked_settings(path, state, needed)
        refusal = untrusted({path: saved}, repeated)
        if untrusted({path: saved}, {"model": model}):  # without which it cannot even predict
            raise CheckpointError(refusal)
        given = Config(**{**saved, **values})
        settings = settings_with(given, read_spaces(state.get("spaces"), given))
        network, normalize = check_fits(settings, state)
    config, spaces = settings.config, settings.spaces
    weights = to_vector(state[name] for name in add_prefix("model", named_tensors(network)))
    make_actor = actor_factory(network, config, spaces)
    attributes = state.get("env_attributes") or {}
    return Policy(config, spaces, weights.numpy(), make_actor, normalize, attributes, refusal)


def check_fits(
    settings: RunSettings, state: State, to_resume: bool = False
) -> tuple[ActorCritic, NormalizeObservation]:
    """Compare the sizes that settings imply with a checkpoint's tensors, before memory is taken for
    them; return an actor-critic whose weights have no values, and a normaliser of the checkpoint's
    statistics.

    A model of the user's own class is trusted. to_resume: a policy by itself is not enough. Raises
    ConfigError if they differ."""
    config, spaces = settings.config, settings.spaces
    shape = (config.num_envs, *spaces.observations.shape)
    observations = state.get("next.observations")
    if (to_resume or observations is not None) and getattr(observations, "shape", None) != shape:
        raise ConfigError(f"next.observations is missing, or not of shape {shape}")
    model = empty_model(config, spaces)
    normalize = new_normalizer(config, spaces)
    statistics = add_prefix("normalize_observation", vars(normalize.statistics))
    parameters = add_prefix("model", named_tensors(model))
    if problems := describe_mismatch(state, parameters | statistics):
        raise ConfigError(problems)
    found = {name: state[name].numpy() for name in statistics}
    normalize.load_state_dict(select_prefix("normalize_observation", found))
    return model, normalize
