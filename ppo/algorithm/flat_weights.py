"""A model's parameters as one vector, and the optimizer that steps it."""

from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from ppo.algorithm.adam import Adam
from ppo.config.config import Config
from ppo.errors import ConfigError
from ppo.system.imports import check_arguments, import_named, parse_call
from ppo.system.state_dict import State

if TYPE_CHECKING:
    from torch.optim import Optimizer  # heavy

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


def mask_of(model: nn.Module, prefixes: Sequence[str]) -> Tensor:
    """Return a mask (P,) bool of the parameters whose names begin with one of some prefixes."""
    parameters = model.named_parameters()
    return torch.cat(
        [torch.full((x.numel(),), name.startswith(tuple(prefixes))) for name, x in parameters]
    )


def make_optimizer(
    config: Config, weights: Tensor, gradients: Tensor, learning_rate: float
) -> "Optimizer | Adam":
    """Make the optimizer of a weight vector (P,).

    Raises ConfigError if --optimizer does not name a class like those of torch.optim, with keyword
    arguments that it takes.
    """
    parameter = nn.Parameter(weights)
    parameter.grad = gradients
    flag = f"--optimizer={config.optimizer}"
    try:
        path, unnamed, given = parse_call(config.optimizer)
    except ValueError as error:
        raise ConfigError(f"{flag}: {error}") from error
    if unnamed or given.keys() & {"params", "lr"}:
        raise ConfigError(
            f"{flag}: give arguments by name, and the learning rate by --learning_rate"
        )
    options = {"lr": learning_rate}
    if path == Config.optimizer:
        options["eps"] = given.pop("eps", ADAM_EPSILON)
        is_plain = not given and options["eps"] == ADAM_EPSILON
        if is_plain and weights.device.type in ("cpu", "cuda"):
            return Adam(parameter, **options)
    make = import_named("optimizer", path)
    tried = nn.Parameter(torch.zeros(1))
    tried.grad = torch.zeros(1)
    if given:
        check_arguments("optimizer", config.optimizer, make, given, [tried], **options)
    try:
        make([tried], **options, **given).step()
        return make([parameter], **options, **given)
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{flag} cannot be used ({error}): give a class of torch.optim, or one like it, that "
            "steps by dense gradients and without a closure, and arguments that it takes"
        ) from error


def stepped_copy(optimizer: "Optimizer | Adam") -> "Optimizer | Adam | None":
    """Return a copy of a new optimizer after a step without gradients, which shows what its state
    is like; None if the user's own cannot be copied."""
    with suppress(Exception):
        copied = deepcopy(optimizer)
        for weights in _weights_of(copied):
            weights.grad = torch.zeros_like(weights)
        copied.step()
        return copied
    return None


def try_moments(stepped: "Optimizer | Adam", moments: State) -> None:
    """Make a step with a saved state of an optimizer. stepped: of stepped_copy. Raises ValueError
    if the weights are not finite after it, and whatever the user's own optimizer does."""
    was_finite = all(x.isfinite().all() for x in _weights_of(stepped))
    groups = stepped.state_dict()["param_groups"]
    stepped.load_state_dict({"state": {0: deepcopy(moments)}, "param_groups": groups})
    stepped.step()
    if was_finite and not all(x.isfinite().all() for x in _weights_of(stepped)):
        raise ValueError("weights would not be finite after a step with its optimizer's state")


def _weights_of(optimizer: "Optimizer | Adam") -> list[Tensor]:
    return [weights for group in optimizer.param_groups for weights in group["params"]]
