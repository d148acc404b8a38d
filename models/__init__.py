"""Actor-critics by name. To import this takes no torch; to make a model does."""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

HIDDEN_SIZES = {"mlp": 64, "cnn": 512, "cnn_small": 512, "impala": 256}  # each model's own


class ModelMismatch(ValueError):
    """The model cannot read the environment's observations; the message says what to do."""


def choose_model(name: str, observation_space: spaces.Box) -> str:
    """The model's name, auto resolved. Raises ModelMismatch if it cannot read the observations."""
    shape = observation_space.shape
    are_images = len(shape) == 3 and observation_space.dtype == np.uint8
    if name == "auto":
        return "cnn" if are_images else "mlp"
    if are_images and name == "mlp":
        raise ModelMismatch(f"--model=mlp cannot read images {shape}: give --model=cnn")
    if name != "mlp" and not are_images:
        kind = f"{observation_space.dtype} {shape}"
        raise ModelMismatch(f"--model={name} reads images of uint8, these observations are {kind}: give --model=mlp")
    return name


def make_model(
    name: str,
    seed: int,
    observation_space: spaces.Box,
    action_space: Any,
    hidden_size: Any,
    share_trunk: Any,
    in_bfloat16: bool = False,
) -> Any:
    """A new model, its initial weights drawn from the seed. in_bfloat16: whether a network on images computes in it.
    Raises ModelMismatch if images are too small for it."""
    import torch

    from models.cnn import CNN, TRUNKS
    from models.mlp import MLP

    torch.manual_seed(seed)
    arguments = (observation_space, action_space, hidden_size, share_trunk)
    return MLP(*arguments) if name == "mlp" else CNN(*arguments, TRUNKS[name], in_bfloat16)


def make_actor(new_model: Callable[[], Any], weights: np.ndarray) -> Any:
    """A models.actor.Actor on weights (P,), for a worker."""
    from models.actor import Actor

    return Actor(new_model(), weights)
