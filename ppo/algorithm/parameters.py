"""A model's parameters as one vector, and the optimizer that steps it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from numpy import ndarray
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from ppo.algorithm.adam import Adam
from ppo.config.config import Config
from ppo.errors import ConfigError
from ppo.models.actor_critic import to_vector
from ppo.system.imports import import_named

ADAM_EPSILON = 1e-5  # Baselines


def flatten_parameters(model: nn.Module) -> tuple[Tensor, Tensor]:
    """Move a model's parameters and gradients into two vectors (P,), and return those.

    The model's own parameters become views of them, so that publishing the weights, clipping the
    gradient and stepping the optimizer are one operation each.
    """
    parameters = list(model.parameters())
    weights = parameters_to_vector(parameters).detach()
    gradients = torch.zeros_like(weights)
    vector_to_parameters(weights, parameters)
    parts = torch.split(gradients, [parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.view_as(parameter)
    return weights, gradients


@contextmanager
def replaced_weights(tensors: Sequence[Tensor], others: ndarray | None) -> Iterator[None]:
    """Compute with other numbers (P,) in tensors until the context is left; None: as they are."""
    if others is None:
        yield
        return
    present = to_vector(tensors)
    _copy_vector(torch.from_numpy(others), tensors)
    try:
        yield
    finally:
        _copy_vector(present, tensors)


def _copy_vector(vector: Tensor, tensors: Sequence[Tensor]) -> None:
    parts = torch.split(vector, [tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part.view_as(tensor))


def make_optimizer(config: Config, weights: Tensor, gradients: Tensor, learning_rate: float) -> Any:
    """Make the optimizer of a weight vector (P,).

    Raises ConfigError if --optimizer names nothing that is made and steps as torch.optim.SGD does.
    """
    parameter = nn.Parameter(weights)
    parameter.grad = gradients
    options: dict[str, Any] = {"lr": learning_rate}
    if config.optimizer == Config.optimizer:
        options["eps"] = ADAM_EPSILON
        if weights.device.type in ("cpu", "cuda"):
            return Adam(parameter, **options)
    make = import_named("optimizer", config.optimizer)
    tried = nn.Parameter(torch.zeros(1))
    tried.grad = torch.zeros(1)
    try:
        make([tried], **options).step()
        return make([parameter], **options)
    except Exception as error:
        raise ConfigError(
            f"--optimizer={config.optimizer} cannot be used ({error}): give a class of "
            "torch.optim, or one like it, that steps by dense gradients and without a closure"
        ) from error
