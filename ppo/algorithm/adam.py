"""Adam without torch.optim, which imports torch's compiler: half a second of every start."""

from typing import Any

import torch
from torch import nn

from ppo.system.state_dict import State


class Adam:
    """Step one parameter (P,) by Adam (Kingma & Ba 2015, algorithm 1).

    Calls the kernel of torch.optim.Adam(fused=True), with bit-identical results. Has only those
    parts of its interface that are used here.
    """

    def __init__(self, weights: nn.Parameter, lr: float, eps: float) -> None:
        self.weights = weights
        self.param_groups: list[State] = [{"params": [weights], "lr": lr}]
        self.eps = eps
        self.state: State = {}

    def step(self) -> None:
        """Move the weights by their gradient."""
        weights = self.weights.data
        if not self.state:
            self.state = {
                "step": torch.zeros((), device=weights.device),
                "exp_avg": torch.zeros_like(weights),
                "exp_avg_sq": torch.zeros_like(weights),
            }
        kernel: Any = getattr(torch, "_fused_adam_", None)
        if kernel:
            self.state["step"] += 1
        else:  # its name is private: in another version of torch, the public function, which counts
            from torch.optim.adam import adam as kernel  # heavy
        kernel(
            [weights],
            [self.weights.grad],
            [self.state["exp_avg"]],
            [self.state["exp_avg_sq"]],
            [],
            [self.state["step"]],
            lr=self.param_groups[0]["lr"],
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.0,
            eps=self.eps,
            amsgrad=False,
            maximize=False,
        )

    def state_dict(self) -> State:
        """Return the state, in the form that torch.optim.Adam has after a step."""
        return {"state": {0: self.state}, "param_groups": self.param_groups}

    def load_state_dict(self, state: State) -> None:
        """Restore what state_dict returned, on the device of the weights; begin anew if it is
        empty."""
        saved = state["state"].get(0, {})
        names = ("step", "exp_avg", "exp_avg_sq") if saved else ()
        self.state = {name: saved[name].to(self.weights.data).clone() for name in names}
