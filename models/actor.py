"""Act with a torch model."""

import numpy as np
import torch
from numpy import ndarray

from ppo.models.actor_critic import ActorCritic, named_tensors
from ppo.models.distributions import Distribution
from ppo.models.noise import EMPTY
from ppo.models.tensors import as_tensor


class Actor:
    """Act with a private copy of weights (P,), which another process may change at any time.

    weights: all of ppo.models.actor_critic.named_tensors, concatenated.
    """

    def __init__(self, model: ActorCritic, weights: ndarray) -> None:
        self.model = model
        self.state_size = model.state_size
        self.policy_parts = model.policy_parts
        self.draw_noise = model.policy_head.draw_noise
        self.device = next(model.parameters()).device
        model.prepare_to_act()
        self.copies = []
        for tensor in named_tensors(model).values():
            part, weights = np.split(weights, [tensor.numel()])
            self.copies.append((tensor, torch.from_numpy(part).view_as(tensor)))
        self.refresh()

    def refresh(self) -> None:
        """Copy the current weights."""
        for tensor, weights in self.copies:
            tensor.copy_(weights)

    def __call__(
        self,
        observations: ndarray,
        noise: ndarray | None,
        mask: ndarray = EMPTY,
        *,
        states: ndarray = EMPTY,
        features: ndarray = EMPTY,
    ) -> ndarray:
        """Return actions (n, D) for observations (n, *observation).

        noise: (n, *noise), or None for the most likely actions; mask: (n, M) bool, the allowed
        choices. Writes the next states to states (n, S), and the features shared by policy and
        value to features (n, F). Empty arrays stand for none of these.
        """
        distribution, shared_features, next_states = self.model.act(
            self.tensor(observations), self.tensor(states)
        )
        if mask.size:
            distribution = distribution.masked(self.tensor(mask))
        actions = distribution.mode() if noise is None else distribution.sample(self.tensor(noise))
        if features.size:
            features[:] = shared_features.cpu()
        if states.size:
            states[:] = next_states.cpu()
        return actions.cpu().numpy()

    def distribution(
        self, observations: ndarray, mask: ndarray = EMPTY, states: ndarray = EMPTY
    ) -> Distribution:
        """Return the distribution of n actions; arguments as above, states are not changed."""
        distribution, *_ = self.model.act(self.tensor(observations), self.tensor(states))
        return distribution.masked(self.tensor(mask)) if mask.size else distribution

    def values(self, observations: ndarray, states: ndarray = EMPTY) -> ndarray:
        """Return the values (n,) of observations; states are not changed."""
        inputs = [self.tensor(table) for table in (observations, states) if table.size]
        return np.asarray(self.model(*inputs)[1].cpu())

    def tensor(self, table: ndarray) -> torch.Tensor:
        """Return a table as a tensor, where the model is."""
        return as_tensor(table).to(self.device)
