"""Actor-critics: the base class of all models, and models of trunks and linear heads."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor, nn

from ppo.envs.make import Spaces
from ppo.models.distributions import Distribution, orthogonal, policy_head

Outputs = tuple[Distribution, Tensor]  # of a model: the distribution of actions, and values (B,)
Step = tuple[Distribution, Any, Any]


class ActorCritic(nn.Module):
    """Base class of models, built-in ones and your own.

    A subclass is called with (observation_space, action_space, config), sets policy_head to
    ppo.models.distributions.policy_head(F, action_space, config), and defines forward. Parameters
    and persistent buffers must be finite; workers get them as float32. Only gradient steps are in
    training mode.

    With num_shared_features, override act, and define heads as FeedForward does. With a state_size,
    override act, and let forward read T steps of b environments, time-major: observations
    (T * b, *observation); states (b, S) before the first step; starts (T * b,) bool, the first
    steps of episodes, None if T is 1; rows (T * b,) bool, the steps to return, if not all."""

    policy_head: Any  # draw_noise(generator, num_steps): noise (num_steps, ...) for its samples
    state_size = 0  # S, numbers remembered from one step to the next
    num_shared_features = 0  # features that policy and value read; workers record them

    def forward(self, observations: Any) -> Outputs:
        """Return the distribution of actions, as policy_head makes it, and values (B,), given
        numbers (B, K), float32 if normalized, or images (B, H, W, C) uint8, or a dict of parts."""
        raise NotImplementedError

    def act(self, observations: Any, states: Tensor) -> Step:
        """Return the distribution for one step of n environments, the features
        (n, num_shared_features), and the states (n, S) after the step; workers call this."""
        return self(observations)[0], None, None


class Trunk(nn.Module):
    """Base class of networks from observations (B, *observation) to features (B, num_features)."""

    num_features: int
    state_size = 0

    def prepare_to_act(self) -> None:
        """Optimize for acting; the trunk is not trained afterwards."""


class FeedForward(ActorCritic):
    """Linear policy and value heads, on a trunk each or on a shared one (--share_trunk).

    Initial weights are orthogonal, with a gain of sqrt(2) in trunks, 0.01 in the policy's head and
    1 in the value's; biases are zero (Baselines)."""

    def __init__(self, make_trunk: Callable[[], Trunk], spaces: Spaces) -> None:
        super().__init__()
        self.policy_trunk = self.value_trunk = trunk = make_trunk()
        self.state_size = trunk.state_size
        if spaces.config.share_trunk:
            self.num_shared_features = trunk.num_features
        else:
            self.value_trunk = make_trunk()
        self.policy_head = policy_head(trunk.num_features, spaces.actions, spaces.config)
        self.value_head = orthogonal(nn.Linear(self.value_trunk.num_features, 1), 1.0)

    def forward(self, observations: Any) -> Outputs:
        features = self.policy_trunk(observations)
        if self.num_shared_features:
            return self.heads(features, features)
        return self.heads(features, self.value_trunk(observations))

    def heads(self, policy_features: Tensor, value_features: Tensor) -> Outputs:
        """Return the distribution of actions and values (B,), from features (B, F)."""
        return self.policy_head(policy_features), self.value_head(value_features).squeeze(-1)

    def act(self, observations: Any, states: Tensor) -> Step:
        # forward directly: calling a module costs as much as the arithmetic of a small layer
        features = self.policy_trunk.forward(observations)
        return self.policy_head.forward(features), features, None


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors that workers and checkpoints get: parameters, then persistent buffers."""
    saved = model.state_dict()
    buffers = {name: x for name, x in model.named_buffers() if name in saved}
    return dict(model.named_parameters()) | buffers


def to_vector(tensors: Iterable[Tensor]) -> Tensor:
    """Concatenate tensors to one float32 vector (P,), detached."""
    return torch.cat([x.detach().flatten().float() for x in tensors])


def as_tensor(array: ndarray) -> Tensor:
    """Return an array as a tensor, float64 as float32: a copy unless its memory begins at a
    multiple of 64 bytes, since products of matrices that begin elsewhere have other last bits."""
    single = array.astype(np.float32) if array.dtype == np.float64 else array
    tensor = torch.from_numpy(np.ascontiguousarray(single))
    return tensor if tensor.data_ptr() % 64 == 0 else tensor.clone()
