"""Actor-critics by name. Importing this package does not import torch; making a model does."""

from pkgutil import resolve_name
from typing import NamedTuple

from ppo.models.errors import ModelMismatch
from ppo.models.parts import images_of
from ppo.system.imports import import_named
from ppo.system.signals import RAISED_BY_SIGNALS

if __name__ == "models":  # of which every class would exist twice
    raise ImportError("import ppo.models, not models")


class ModelEntry(NamedTuple):
    """A built-in model: policy and value heads on the features of a trunk.

    make_trunk: import path of a function or class that makes a ppo.models.actor_critic.Trunk from
    (observation_space, config, size). hidden_size: the default of its size, which for the mlp may
    also be a string as --policy_layers takes it. reads: "vectors", "images" (or images and vectors)
    or "any".
    """

    make_trunk: str
    hidden_size: int
    reads: str
    is_recurrent: bool = False


MODELS = {
    "mlp": ModelEntry("ppo.models.mlp:VectorTrunk", 64, "vectors"),
    "cnn": ModelEntry("ppo.models.cnn:make_nature_trunk", 512, "images"),
    "cnn_small": ModelEntry("ppo.models.cnn:make_small_nature_trunk", 512, "images"),
    "impala": ModelEntry("ppo.models.cnn:make_impala_trunk", 256, "images"),
    "lstm": ModelEntry("ppo.models.recurrent:make_lstm_trunk", 128, "any", is_recurrent=True),
    "gru": ModelEntry("ppo.models.recurrent:make_gru_trunk", 128, "any", is_recurrent=True),
}


def choose_model(name: str, observation_space) -> str:
    """Return a model's name, with auto resolved.

    Raises ModelMismatch if the name is unknown or the model cannot read the observations.
    """
    fitting = "cnn" if images_of(observation_space) else "mlp"
    if name == "auto":
        return fitting
    if ":" in name:
        return name
    if name not in MODELS:
        raise ModelMismatch(
            f"--model={name} is unknown: give auto, {', '.join(MODELS)} or module:Class"
        )
    reads = MODELS[name].reads
    if reads not in ("any", MODELS[fitting].reads):
        raise ModelMismatch(
            f"--model={name} reads {reads} (images are uint8), these observations are "
            f"{observation_space.dtype} {observation_space.shape}: give --model={fitting}"
        )
    return name


def make_model(config, observation_space, action_space):
    """Make an actor-critic whose initial weights are drawn from torch's random stream.

    config: a ppo.config.config.Config in which every auto is resolved. Raises ModelMismatch if
    images are too small, if the action space does not suit --use_sde or --squash_actions, or if the
    user's class cannot be used.
    """
    import numpy as np

    from ppo.models.actor_critic import FeedForward, Recurrent, check_model

    if ":" in config.model:
        own = import_named("model", config.model, ModelMismatch)
        try:
            model = own(observation_space, action_space, config)
            check_model(model, observation_space)
        except RAISED_BY_SIGNALS:
            raise
        except BaseException as error:
            raise ModelMismatch(
                f"--model={config.model} fails ({type(error).__name__}: {error}): see "
                "ppo.models.actor_critic.ActorCritic for what it needs"
            ) from error
    else:
        entry = MODELS[config.model]
        make_trunk = resolve_name(entry.make_trunk)
        model = (Recurrent if entry.is_recurrent else FeedForward)(
            lambda layers: make_trunk(observation_space, config, layers or config.hidden_size),
            action_space,
            config,
        )
    for flag in ("use_sde", "squash_actions"):
        if getattr(config, flag) and model.policy_head.action_dtype is np.int64:
            raise ModelMismatch(
                f"--{flag} is for continuous actions, these are {action_space}: leave it out"
            )
    return model
