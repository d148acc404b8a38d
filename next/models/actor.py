"""Act with a torch model."""

from typing import Any

import numpy as np
import torch
from numpy import ndarray

from ppo.models.actor_critic import ActorCritic, as_tensor, named_tensors
from ppo.models.distributions import Distribution
from ppo.models.noise import EMPTY


class Actor:
    """Act with a private copy of weights (P,), which another process may change at any time.

    weights: all of ppo.models.actor_critic.named_tensors, concatenated. Raises ValueError if they
    are not those of the model."""

    def __init__(self, model: ActorCritic, weights: ndarray) -> None:
        self.model = model
        self.state_size = model.state_size
        self.draw_noise = model.policy_head.draw_noise
        self.device = next(model.parameters()).device
        model.prepare_to_act()
        self.copies = []
        first = 0
        for tensor in named_tensors(model).values():
            part = weights[first : first + tensor.numel()]
            self.copies.append((tensor, torch.from_numpy(part).view_as(tensor)))
            first += tensor.numel()
        if first != len(weights):
            raise ValueError(f"the model has {first} weights, the run {len(weights)}")
        self.refresh()

    def refresh(self) -> None:
        """Copy the current weights."""
        with torch.no_grad():
            for tensor, weights in self.copies:
                tensor.copy_(weights)

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
        """Return actions (n, D) for observations (n, *observation), or a dict of them.

        noise: (n, *noise), or None for the most likely actions; mask: (n, M) bool, the allowed
        choices. Writes the next states to states (n, S), and the features shared by policy and
        value to features (n, F). Empty arrays stand for none of these.
        """
        model = self.model
        distribution, shared_features, next_states = model.act(
            self.tensors(observations), self.tensors(states)
        )
        if mask.size:
            distribution = distribution.masked(self.tensors(mask))
        actions = distribution.mode() if noise is None else distribution.sample(self.tensors(noise))
        if features.size:
            features[:] = shared_features.cpu()
        if states.size:
            states[:] = next_states.cpu()
        return actions.cpu().numpy()

    @torch.no_grad()
    def distribution(
        self, observations: Any, mask: ndarray = EMPTY, states: ndarray = EMPTY
    ) -> Distribution:
        """Return the distribution of n actions; arguments as above, states are not changed."""
        distribution, *_ = self.model.act(self.tensors(observations), self.tensors(states))
        return distribution.masked(self.tensors(mask)) if mask.size else distribution

    @torch.no_grad()
    def values(self, observations: Any, states: ndarray = EMPTY) -> ndarray:
        """Return the values (n,) of observations; states are not changed."""
        inputs = [self.tensors(observations)]
        if states.size:
            inputs.append(self.tensors(states))
        return np.asarray(self.model(*inputs)[1].cpu())

    def tensors(self, tables: Any) -> Any:
        """Return a table, or a dict of tables, as tensors where the model is."""
        if isinstance(tables, dict):
            return {name: self.tensors(table) for name, table in tables.items()}
        return as_tensor(np.ascontiguousarray(tables)).to(self.device)
