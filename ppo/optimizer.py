"""The optimizer of a model, whose weights are one vector."""

from typing import Any

import torch
from torch import nn

EPSILON = 1e-5  # Baselines


class Adam:
    """Step one vector of weights (P,) by Adam (Kingma & Ba 2015, algorithm 1), as
    torch.optim.Adam(fused=True) does, but without importing torch's compiler for half a second."""

    def __init__(self, parameter: nn.Parameter, learning_rate: float) -> None:
        self.weights = parameter.data
        self.gradients: Any = parameter.grad
        self.param_groups = [{"lr": learning_rate}]
        self.moments = {
            "step": torch.zeros((), device=parameter.device),
            "exp_avg": torch.zeros_like(parameter.data),
            "exp_avg_sq": torch.zeros_like(parameter.data),
        }

    def step(self) -> None:
        """Move the weights by their gradient."""
        step, mean, square = self.moments.values()
        step += 1
        torch._fused_adam_(
            [self.weights],
            [self.gradients],
            [mean],
            [square],
            [],
            [step],
            lr=self.param_groups[0]["lr"],
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.0,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )

    def state_dict(self) -> dict[str, Any]:
        return {"state": {0: self.moments}, "param_groups": self.param_groups}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, tensor in self.moments.items():
            tensor.copy_(state["state"][0][name])


def flatten_parameters(model: nn.Module) -> nn.Parameter:
    """Make a model's parameters and gradients views of one parameter (P,) and of its gradient, so
    that clipping the gradient and stepping the optimizer are one operation each."""
    parameters = list(model.parameters())
    flat = nn.Parameter(nn.utils.parameters_to_vector(parameters).detach())
    flat.grad = gradients = torch.zeros_like(flat.data)
    nn.utils.vector_to_parameters(flat.data, parameters)
    parts = gradients.split([x.numel() for x in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.view_as(parameter)
    return flat
