"""Adam without what surrounds it in torch.optim, which imports torch's compiler: half a second of every start."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn


class Adam:
    """Adam (Kingma & Ba 2015, algorithm 1) of one vector (P,), by the kernel of torch.optim.Adam(fused=True), and so
    with the same bits. As far as it is used here it has the same interface."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, eps: float) -> None:
        (self.weights,) = parameters
        self.param_groups: list[dict[str, Any]] = [{"lr": lr}]
        self.eps = eps
        self.state: dict[str, Any] = {}

    def step(self) -> None:
        """Move the weights by their gradient."""
        weights = self.weights.data
        if not self.state:
            moments = {name: torch.zeros_like(weights) for name in ("exp_avg", "exp_avg_sq")}
            self.state = {"step": torch.zeros((), device=weights.device), **moments}
        self.state["step"] += 1
        kernel: Any = torch._fused_adam_
        lists = [
            [x]
            for x in (weights, self.weights.grad, self.state["exp_avg"], self.state["exp_avg_sq"])
        ]
        options = {
            "beta1": 0.9,
            "beta2": 0.999,
            "weight_decay": 0.0,
            "amsgrad": False,
            "maximize": False,
        }
        kernel(
            *lists, [], [self.state["step"]], lr=self.param_groups[0]["lr"], eps=self.eps, **options
        )

    def state_dict(self) -> dict[str, Any]:
        """As torch.optim.Adam has it."""
        return {"state": {0: self.state} if self.state else {}, "param_groups": self.param_groups}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take on what state_dict returned, on whatever device."""
        device = self.weights.device
        self.state = {name: tensor.to(device).clone() for name, tensor in state["state"][0].items()}
