"""Act with a torch model."""

from typing import Any

import numpy as np
import torch
from numpy import ndarray

from ppo.models.actor_critic import ActorCritic, Trunk, as_tensor, named_tensors
from ppo.models.distributions import Distribution
from ppo.models.numpy_mlp import EMPTY


class Actor:
    """Act with a private copy of weights (P,), which another process may change at any time: all of
    named_tensors, concatenated. Raises ValueError if they are not those of the model."""

    def __init__(self, model: ActorCritic, weights: ndarray) -> None:
        self.model = model
        self.state_size = model.state_size
        self.draw_noise = model.policy_head.draw_noise
        self.device = next(model.parameters()).device
        model.requires_grad_(False).eval()
        for module in model.modules():
            if isinstance(module, Trunk):
                module.prepare_to_act()
        self.own = [*named_tensors(model).values()]
        sizes = [x.numel() for x in self.own]
        if sum(sizes) != len(weights):
            raise ValueError(f"the model has {sum(sizes)} weights, the run {len(weights)}")
        self.source = torch.from_numpy(weights).split(sizes)
        self.refresh()

    def refresh(self) -> None:
        """Copy the current weights."""
        for tensor, weights in zip(self.own, self.source, strict=True):
            tensor.copy_(weights.view_as(tensor))

    @torch.no_grad()
    def __call__(
        self,
        observations: Any,
        noise: ndarray | None,
        *,
        mask: ndarray = EMPTY,
        states: ndarray = EMPTY,
        features: ndarray = EMPTY,
    ) -> ndarray:
        """Return actions (n, D) for observations (n, *observation), or a dict of them. noise:
        (n, *noise), None for the most likely actions; mask: (n, M) bool, allowed choices.
        Unless they are empty, writes the next states (n, S) and the shared features (n, F)."""
        inputs = self._tensors(observations), self._tensors(states)
        distribution, shared, next_states = self.model.act(*inputs)
        if mask.size:
            distribution = distribution.masked(self._tensors(mask))
        if features.size:
            features[:] = shared.cpu()
        if states.size:
            states[:] = next_states.cpu()
        if noise is None:
            return distribution.mode().cpu().numpy()
        return distribution.sample(self._tensors(noise)).cpu().numpy()

    @torch.no_grad()
    def evaluate(self, observations: Any, states: ndarray) -> tuple[Distribution, ndarray]:
        """Return the distribution of n actions, and values (n,); states are not changed."""
        inputs = [observations, states] if states.size else [observations]
        distribution, values = self.model(*map(self._tensors, inputs))
        return distribution, values.numpy(force=True)

    def _tensors(self, tables: Any) -> Any:
        if isinstance(tables, dict):
            return {name: self._tensors(table) for name, table in tables.items()}
        return as_tensor(np.asarray(tables)).to(self.device)
