"""Actor-critics by name. To import this takes no torch; to make a model does."""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces


class ModelMismatch(ValueError):
    """The model cannot read the environment's observations; the message says what to do."""


def choose_model(name: str, observation_space: spaces.Box) -> str:
    """The model's name, auto resolved. Raises ModelMismatch if it cannot read the observations."""
    shape = observation_space.shape
    if len(shape) > 1 and observation_space.dtype == np.uint8:
        raise ModelMismatch(f"--model={name} cannot read images {shape}: choose an environment that observes vectors")
    return "mlp"


def make_model(name: str, seed: int, *arguments: Any) -> Any:
    """A new model, its initial weights drawn from the seed. arguments: those of its class, as models.mlp.MLP."""
    import torch

    from models.mlp import MLP

    torch.manual_seed(seed)
    return {"mlp": MLP}[name](*arguments)


def make_actor(new_model: Callable[[], Any], weights: np.ndarray) -> Any:
    """A models.actor.Actor on weights (P,), for a worker."""
    from models.actor import Actor

    return Actor(new_model(), weights)
