"""Actor-critics by name. To import this takes no torch; to make a model does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

if TYPE_CHECKING:
    from models.actor import Actor
    from models.mlp import MLP


class ModelMismatch(ValueError):
    """The model cannot read the environment's observations; the message says what to do."""


def choose_model(name: str, observation_space: spaces.Box) -> str:
    """The model's name, auto resolved. Raises ModelMismatch if it cannot read the observations."""
    shape = observation_space.shape
    if len(shape) > 1 and observation_space.dtype == np.uint8:
        raise ModelMismatch(f"--model={name} cannot read images {shape}: choose an environment that observes vectors")
    return "mlp"


def make_model(name: str, seed: int, *arguments: Any) -> MLP:
    """A new model, its initial weights drawn from the seed. arguments: those of its class."""
    import torch

    from models.mlp import MLP

    torch.manual_seed(seed)
    return {"mlp": MLP}[name](*arguments)


def make_actor(new_model: Callable[[], MLP], weights: np.ndarray) -> Actor:
    """What acts by a model with weights (P,), for a worker."""
    from models.actor import Actor

    return Actor(new_model(), weights)
