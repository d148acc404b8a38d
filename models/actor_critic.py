"""Actor-critics: what all are, and those whose policy and value read features that a trunk makes of observations."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ppo.models.distributions import Distribution, orthogonal, policy_head
from ppo.models.numpy_mlp import ACTIVATIONS, Layout


class ActorCritic(nn.Module):
    """What a model of your own derives from. It is made from (observation_space, action_space, config), sets
    policy_head to ppo.models.distributions.policy_head(F, action_space, config), and has a forward. Its parameters are
    all that is shared with workers and saved: no buffers, and no memory of its own (ppo.models.lstm has that)."""

    policy_head: Any
    state_size = 0  # how many numbers it remembers from one step to the next
    num_shared_features = (
        0  # features that policy and value share: workers record them, to be computed once
    )

    def forward(self, observations: Tensor) -> tuple[Distribution, Tensor]:
        """observations: (B, *observation), float32 if normalised, else as they come. Returns what policy_head makes of
        features (B, F), and values (B,)."""
        raise NotImplementedError

    def act(
        self, observations: Tensor, states: Tensor | None
    ) -> tuple[Distribution, Tensor | None, Tensor | None]:
        """As workers use it: the distribution, features (B, num_shared_features), and the states after this step."""
        return self(observations)[0], None, None

    def numpy_layout(self) -> Layout | None:
        """What ppo.models.numpy_mlp needs to do all that this does; None if it cannot."""
        return None

    def prepare_to_act(self) -> None:
        """Make what is to act only, by weights that are copied in, as fast as it can be."""
        self.requires_grad_(False).eval()
        for module in self.modules():
            if isinstance(module, Trunk):
                module.prepare_to_act()


class Trunk(nn.Module):
    """From observations (B, *observation) to features (B, num_features) float32."""

    num_features: int
    hidden_layers_only: str | None = None  # of what kind, if it is nothing but such layers

    def prepare_to_act(self) -> None:
        """As an actor-critic does."""


class FeedForward(ActorCritic):
    """Policy and value, each linear in features: from a trunk each, or one that they share. Orthogonal initial weights
    of gain sqrt(2), but 0.01 for the policy's head and 1 for the value's; zero bias (Baselines)."""

    def __init__(self, make_trunk: Callable[[], Trunk], action_space: Any, config: Any) -> None:
        super().__init__()
        self.policy_trunk = make_trunk()
        self.value_trunk = self.policy_trunk if config.share_trunk else make_trunk()
        num_features = self.policy_trunk.num_features
        self.num_shared_features = num_features if config.share_trunk else 0
        self.policy_head = policy_head(num_features, action_space, config)
        self.value_head = orthogonal(nn.Linear(num_features, 1), gain=1.0)

    def forward(self, observations: Tensor) -> tuple[Distribution, Tensor]:
        features = self.policy_trunk(observations)
        return self.heads(
            features, features if self.num_shared_features else self.value_trunk(observations)
        )

    def numpy_layout(self) -> Layout | None:
        activation, head = self.policy_trunk.hidden_layers_only, self.policy_head
        if (
            type(self) is not FeedForward
            or activation not in ACTIVATIONS
            or head.num_choices is None
        ):
            return None
        shapes = {name: tuple(parameter.shape) for name, parameter in self.named_parameters()}
        return Layout(shapes, activation, head.action_size, head.num_choices)

    def heads(self, policy_features: Tensor, value_features: Tensor) -> tuple[Distribution, Tensor]:
        """features: (B, F) each. Returns the distribution of actions, and values (B,)."""
        return self.policy_head(policy_features), self.value_head(value_features).squeeze(-1)

    def act(
        self, observations: Tensor, states: Tensor | None
    ) -> tuple[Distribution, Tensor | None, Tensor | None]:
        features = self.policy_trunk.forward(
            observations
        )  # calls of modules cost as much as their arithmetic here
        return self.policy_head.forward(features), features, None
