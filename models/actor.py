"""The policy as workers use it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ppo.models.actor_critic import ActorCritic

Table = np.ndarray
NONE = np.zeros(0, np.float32)


class Actor:
    """Acts by a copy of weights that lie in an array (P,), which another process may change between refreshes."""

    def __init__(self, model: ActorCritic, weights: np.ndarray) -> None:
        self.model, self.state_size = model, model.state_size
        self.device = next(model.parameters()).device
        self.draw_noise: Callable[[np.random.Generator, int], np.ndarray] = (
            model.policy_head.draw_noise
        )
        model.prepare_to_act()
        copies = list(model.parameters())
        parts = torch.from_numpy(weights).split([copy.numel() for copy in copies])
        self.copies = [(copy, part.view_as(copy)) for copy, part in zip(copies, parts, strict=True)]
        self.refresh()

    def refresh(self) -> None:
        """Act by the weights as they are now."""
        for copy, weights in self.copies:
            copy.copy_(weights)

    def __call__(
        self,
        observations: Table,
        noise: Table | None,
        mask: Table = NONE,
        states: Table = NONE,
        features: Table = NONE,
    ) -> np.ndarray:
        """observations: (n, *observation); noise: (n, *noise), or None for the most likely actions; mask: (n, M) bool,
        what is allowed. To be overwritten: states (n, S), by those after this step, and features (n, F), that policy
        and value share. Returns actions: (n, D)."""
        shared: Any
        remembered: Any
        distribution, shared, remembered = self.model.act(
            self._tensor(observations), self._tensor(states)
        )
        if mask.size:
            distribution = distribution.masked(self._tensor(mask))
        actions = distribution.mode() if noise is None else distribution.sample(self._tensor(noise))
        if features.size:
            features[:] = shared.cpu()
        if states.size:
            states[:] = remembered.cpu()
        return actions.cpu().numpy()

    def _tensor(self, table: Table) -> torch.Tensor:
        tensor = torch.from_numpy(table)
        return (
            tensor.pin_memory().to(self.device, non_blocking=True)
            if self.device.type == "cuda"
            else tensor
        )
