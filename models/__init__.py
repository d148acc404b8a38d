"""Actor-critics by name. To import this takes no torch; to make a model does."""

import math
from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

import numpy as np
from gymnasium import spaces

from ppo.models.errors import ModelMismatch

HIDDEN_SIZES = {
    "mlp": 64,
    "cnn": 512,
    "cnn_small": 512,
    "impala": 256,
    "lstm": 128,
}  # each model's own


def image_shape(space: Any) -> tuple[int, ...] | None:
    """(H, W, C) of observations that are images or begin with one; None for others."""
    is_image = len(space.shape) == 3 and space.dtype == np.uint8
    return getattr(space, "image_shape", space.shape if is_image else None)


def choose_model(name: str, observation_space: spaces.Box) -> str:
    """The model's name, auto resolved. Raises ModelMismatch if it cannot read the observations."""
    has_image = image_shape(observation_space) is not None
    if name == "auto":
        return "cnn" if has_image else "mlp"
    if has_image and name == "mlp":
        raise ModelMismatch(
            f"--model=mlp cannot read images {image_shape(observation_space)}: give --model=cnn"
        )
    if name in ("cnn", "cnn_small", "impala") and not has_image:
        kind = f"{observation_space.dtype} {observation_space.shape}"
        raise ModelMismatch(
            f"--model={name} reads images of uint8, these observations are {kind}: give --model=mlp"
        )
    return name


def make_model(
    config: Any, seed: int, observation_space: Any, action_space: Any, in_bfloat16: bool
) -> Any:
    """A new actor-critic by a ppo.config.config.Config, its initial weights drawn from the seed. Raises ModelMismatch if
    images are too small for it, if it cannot act as the config says, or if a class of one's own is no ActorCritic."""
    import torch

    from ppo.models.actor_critic import ActorCritic, FeedForward
    from ppo.models.lstm import Recurrent

    torch.manual_seed(seed)
    if ":" in config.model:
        try:
            own = resolve_name(config.model)
        except (ImportError, AttributeError, ValueError) as error:
            raise ModelMismatch(
                f"--model={config.model} cannot be imported ({error}): give module:Class"
            ) from error
        if not isinstance(own, type) or not issubclass(own, ActorCritic):
            raise ModelMismatch(
                f"--model={config.model} must be a class that derives from ppo.models.actor_critic.ActorCritic"
            )
        try:
            made: Any = own(observation_space, action_space, config)
            _try(made, observation_space)
        except Exception as error:
            fix = "see ppo.models.actor_critic.ActorCritic for what it needs"
            raise ModelMismatch(
                f"--model={config.model} fails ({type(error).__name__}: {error}): {fix}"
            ) from error
    else:
        kind = Recurrent if config.model == "lstm" else FeedForward
        made = kind(
            lambda: _make_trunk(config, observation_space, in_bfloat16), action_space, config
        )
    if made.policy_head.action_dtype is np.int64 and (config.use_sde or config.squash_actions):
        flag = "--use_sde" if config.use_sde else "--squash_actions"
        raise ModelMismatch(
            f"{flag} is for continuous actions, these are {action_space}: leave it out"
        )
    return made


def _try(model: Any, observation_space: Any) -> None:
    """Raises what a model of the user's own does on two observations, or TypeError for what it should not be."""
    import torch

    from ppo.models.distributions import Distribution

    distribution, values = model(torch.zeros(2, *observation_space.shape))
    if not isinstance(distribution, Distribution) or values.shape != (2,):
        raise TypeError("forward must return what policy_head makes, and values (B,)")
    if set(model.state_dict()) - {
        name for name, _ in model.named_parameters(remove_duplicate=False)
    }:
        raise TypeError("it has buffers, which no worker would see")


def _make_trunk(config: Any, observation_space: Any, in_bfloat16: bool) -> Any:
    """What reads observations; before an LSTM the usual thing for their kind."""
    from ppo.models.cnn import LAYERS, ImageAndVectorTrunk, ImageTrunk
    from ppo.models.mlp import VectorTrunk

    shape, name, size = image_shape(observation_space), config.model, config.hidden_size
    if name == "lstm":
        name = choose_model("auto", observation_space)
        size = HIDDEN_SIZES[name]
    if shape is None:
        return VectorTrunk(observation_space.shape, size, config)
    images = ImageTrunk(LAYERS[name](shape, size), size, in_bfloat16)
    if shape == observation_space.shape:
        return images
    num_others = math.prod(observation_space.shape) - math.prod(shape)
    return ImageAndVectorTrunk(
        shape, images, VectorTrunk((num_others,), HIDDEN_SIZES["mlp"], config)
    )


def make_actor(new_model: Callable[[], Any], weights: np.ndarray) -> Any:
    """A ppo.models.actor.Actor on weights (P,), for a worker."""
    from ppo.models.actor import Actor

    return Actor(new_model(), weights)
