"""The policy as workers use it."""

from collections.abc import Callable

import numpy as np
import torch

from models.actor_critic import ActorCritic

Table = np.ndarray | None


class Actor:
    """Acts by a copy of weights that lie in an array (P,), which another process may change between refreshes."""

    def __init__(self, model: ActorCritic, weights: np.ndarray) -> None:
        self.model = model
        self.draw_noise: Callable[[np.random.Generator, int], np.ndarray] = model.policy_head.draw_noise
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
        observations: np.ndarray,
        noise: Table,
        mask: Table = None,
        states: Table = None,
        next_states: Table = None,
        features: Table = None,
    ) -> np.ndarray:
        """observations: (n, *observation); noise: (n, *noise), or None for the most likely actions; mask: (n, M) bool,
        what is allowed; states: (n, S), of a model that remembers. To be filled: next_states (n, S), after this step,
        and features (n, F), that policy and value share. Returns actions: (n, D)."""
        remembered = None if states is None else torch.from_numpy(states)
        distribution, shared, remembered = self.model.act(torch.from_numpy(observations), remembered)
        if features is not None:
            features[:] = shared
        if next_states is not None:
            next_states[:] = remembered
        if mask is not None:
            distribution = distribution.masked(torch.from_numpy(mask))
        actions = distribution.mode() if noise is None else distribution.sample(torch.from_numpy(noise))
        return actions.numpy()
