"""Actor-critics: the base class of all models, and models of trunks and linear heads."""

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from gymnasium import Space
from gymnasium.spaces import Box
from torch import Tensor, nn

from ppo.extensions import functions_of
from ppo.models.distributions import Distribution, PolicyHead, orthogonal, policy_head

if TYPE_CHECKING:
    from ppo.config.config import Config

Outputs = tuple[Distribution, Tensor]  # of a model: the distribution of actions, and values (B,)
Step = tuple[Distribution, Any, Any]


class ActorCritic(nn.Module):
    """Base class of models, built-in ones and users' own.

    A subclass is called with (observation_space, action_space, config), sets policy_head to
    ppo.models.distributions.policy_head(F, action_space, config), or to TorchHead of that module
    for one of torch's distributions, such as Beta, and defines forward, whose values may be those
    of value_head(F, config). Parameters and buffers, which must be finite, are sent to workers (as
    float32) and saved in checkpoints, except for buffers registered with persistent=False. Models
    act and evaluate rollouts in eval mode; only gradient steps are in training mode. The only
    memory between steps are states: forward of a model with a state_size takes them after the
    observations, and returns distributions and values (T * b,) of sequences of T steps of b
    environments:

    observations: (T * b, *observation), time-major; states: (b, S), before the first step; starts:
    (T * b,) bool, whether an observation is the first of an episode; None if T is 1; rows: (T * b,)
    bool, those whose distributions and values are returned; None for all.
    """

    policy_head: PolicyHead
    state_size = 0  # S, numbers remembered from one step to the next
    policy_parts: tuple[str, ...] | None = None  # of observations, that acting reads; None: all
    num_shared_features = 0  # features that policy and value read; workers record them

    @cached_property
    def buffer_names(self) -> list[str]:
        """The names of buffers, except for those registered with persistent=False."""
        saved = self.state_dict()
        return [name for name, _ in self.named_buffers() if name in saved]

    def forward(self, observations: Tensor) -> Outputs:
        """Return the distribution of actions, as policy_head makes it, and values (B,).

        observations: (B, *observation), float32 if they are normalised, else of the space's dtype.
        """
        raise NotImplementedError

    def act(self, observations: Tensor, states: Tensor) -> Step:
        """Compute the policy for one step of n environments; workers call this.

        Returns the distribution, the features (n, num_shared_features) shared with the value head,
        and the states (n, S) after the step.
        """
        return self(observations)[0], None, None

    def prepare_to_act(self) -> None:
        """Prepare for acting only, with weights that are copied in: no gradients, eval mode."""
        self.requires_grad_(False).eval()
        for module in self.modules():
            if isinstance(module, Trunk):
                module.prepare_to_act()


class Trunk(nn.Module):
    """Base class of networks from observations (B, *observation) to features (B, num_features)."""

    num_features: int
    parts: tuple[str, ...] | None = None  # of observations, that it reads; None: all

    def __init__(self) -> None:
        super().__init__()
        self.state_size = 0  # S, if it remembers

    def prepare_to_act(self) -> None:
        """Optimise for acting; the trunk is not trained afterwards."""


class FeedForward(ActorCritic):
    """Linear policy and value heads, on a trunk each or on a shared one (--share_trunk).

    make_trunk: makes a Trunk from --policy_layers or --value_layers, None where they are not given;
    make_value_trunk: the same for a value with a trunk of its own, by default make_trunk.
    Initial weights are orthogonal, with a gain of sqrt(2) in trunks, 0.01 in the policy's head and
    1 in the value's; biases are zero (Baselines).
    """

    def __init__(
        self,
        make_trunk: "Callable[[str | None], Trunk]",
        action_space: Space[Any],
        config: "Config",
        make_value_trunk: "Callable[[str | None], Trunk] | None" = None,
    ) -> None:
        super().__init__()
        self.policy_trunk = self.value_trunk = make_trunk(config.policy_layers)
        self.policy_parts = self.policy_trunk.parts or self.policy_parts
        self.state_size = self.policy_trunk.state_size
        num_features = self.policy_trunk.num_features
        if config.share_trunk:
            self.num_shared_features = num_features
        else:
            self.value_trunk = (make_value_trunk or make_trunk)(config.value_layers)
        self.policy_head = policy_head(num_features, action_space, config)
        self.value_head = value_head(self.value_trunk.num_features, config)

    def forward(self, observations: Tensor) -> Outputs:
        features = self.policy_trunk(observations)
        if self.num_shared_features:
            return self.heads(features, features)
        return self.heads(features, self.value_trunk(observations))

    def heads(self, policy_features: Tensor, value_features: Tensor) -> Outputs:
        """Return the distribution of actions and values (B,), from features (B, F)."""
        return self.policy_head(policy_features), self.value_head(value_features).squeeze(-1)

    def act(self, observations: Tensor, states: Tensor) -> Step:
        # forward directly: calling a module costs as much as the arithmetic of a small layer
        features = self.policy_trunk.forward(observations)
        return self.policy_head.forward(features), features, None


def value_head(num_features: int, config: "Config") -> nn.Linear:
    """Make the layer from features (..., F) to values (..., 1), by default an orthogonal one."""
    made = (make(num_features, config) for make in functions_of("value_head"))
    head = next(filter(None, made), None)
    return head or orthogonal(nn.Linear(num_features, 1), gain=1.0)


def check_model(model: ActorCritic, observation_space: Box) -> None:
    """Run a user's model on two observations. Raises TypeError for wrong types or shapes."""
    if not isinstance(model, ActorCritic):
        raise TypeError("it does not derive from ActorCritic")
    observations = torch.zeros(2, *observation_space.shape)
    if observation_space.dtype == "uint8":
        observations = observations.byte()
    states = (torch.zeros(2, model.state_size),) if model.state_size else ()
    distribution, values = model.eval()(observations, *states)
    if not isinstance(distribution, Distribution):
        raise TypeError("forward must return a distribution made by policy_head, and values")
    log_probs = distribution.log_prob(distribution.mode())
    if not values.shape == log_probs.shape == distribution.entropy().shape == (2,):
        raise TypeError("values, and log_prob and entropy of the distribution, must be (B,)")


def persistent_buffers(model: ActorCritic) -> dict[str, Tensor]:
    """Return a model's buffers by name, except for those registered with persistent=False."""
    return {name: model.get_buffer(name) for name in model.buffer_names}


def named_tensors(model: ActorCritic) -> dict[str, Tensor]:
    """Return the tensors that workers and checkpoints get: parameters, then persistent buffers."""
    return {**dict(model.named_parameters()), **persistent_buffers(model)}


def to_vector(tensors: Iterable[Tensor]) -> Tensor:
    """Flatten and concatenate tensors to one float32 vector (P,), detached."""
    return torch.cat([tensor.detach().flatten().float() for tensor in tensors])
