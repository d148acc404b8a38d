"""Actor-critics by name. Importing this package does not import torch; making a model does."""

from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ppo.extensions import Model, functions_of, names_of
from ppo.models.errors import ModelMismatch
from ppo.models.observation_parts import images_of, parts_of
from ppo.system.imports import import_named
from ppo.system.signals import RAISED_BY_SIGNALS

if TYPE_CHECKING:
    from gymnasium import Space
    from gymnasium.spaces import Box

    from ppo.config.config import Config
    from ppo.models.actor_critic import ActorCritic, Trunk  # heavy

if __name__ == "models":  # of which every class would exist twice
    raise ImportError("import ppo.models, not models")


CORE = {
    "mlp": Model("ppo.models.mlp:VectorTrunk", 64, "vectors"),
    "cnn": Model("ppo.models.cnn:make_nature_trunk", 512, "images"),
    "cnn_small": Model("ppo.models.cnn:make_small_nature_trunk", 512, "images"),
    "impala": Model("ppo.models.cnn:make_impala_trunk", 256, "images"),
}
MODELS: dict[str, Model] = {**CORE, **names_of("models")}


def choose_model(name: str, observation_space: "Box") -> str:
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
        parts = parts_of(observation_space).items()
        seen = ", ".join(f"{part} {box.dtype} {box.shape}" for part, box in parts)
        raise ModelMismatch(
            f"--model={name} reads {reads} (images are uint8), and these observations are {seen}: "
            f"give --model={fitting}"
        )
    return name


def make_model(
    config: "Config", observation_space: "Box", action_space: "Space[Any]"
) -> "ActorCritic":
    """Make an actor-critic whose initial weights are drawn from torch's random stream.

    config: every auto in it is resolved. Raises ModelMismatch if images are too small, if the
    action space does not suit --squash_actions, or if the user's class cannot be used.
    """
    import numpy as np

    from ppo.models.actor_critic import check_model

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

        def make_trunk(network: str, layers: str | None) -> "Trunk":
            def make(space: "Box") -> "Trunk":
                return resolve_name(entry.make_trunk)(space, config, layers or config.hidden_size)

            for around in functions_of("trunk"):
                make = around(config, network, make)
            return make(observation_space)

        trunks = {network: partial(make_trunk, network) for network in ("policy", "value")}
        model = resolve_name(entry.model)(trunks["policy"], action_space, config, trunks["value"])
    if config.squash_actions and model.policy_head.action_dtype is np.int64:
        raise ModelMismatch(
            f"--squash_actions is for continuous actions, these are {action_space}: leave it out"
        )
    return model
