"""Acting as a CUDA graph."""

from typing import TYPE_CHECKING, NamedTuple

import torch
from numpy import ndarray
from torch import Tensor

from ppo.envs.probe import Spaces
from ppo.extras.cuda.graphs import can_capture, capture
from ppo.models.actor import Actor
from ppo.models.actor_critic import ActorCritic
from ppo.models.noise import EMPTY
from ppo.models.tensors import as_tensor
from ppo.policy.factories import ActorFactory

if TYPE_CHECKING:
    from ppo.config.config import Config


def make_factory(
    model: ActorCritic, config: "Config", spaces: Spaces, device: str
) -> "GraphActorFactory | None":
    """Return what makes actors of a model on a GPU; None if acting cannot be captured."""
    if not can_capture(model, config, device):
        return None
    return GraphActorFactory(config, spaces, device)


class GraphActorFactory(ActorFactory):
    """Make actors that act by CUDA graphs."""

    def __call__(self, weights: ndarray) -> "GraphActor":
        return GraphActor(self.make_model(), weights)


class ActingStep(NamedTuple):
    """A step of a number of environments: pinned memory for what goes to the GPU, and for what
    comes back, actions and features; the graph copies both."""

    inputs: list[Tensor]
    results: list[Tensor]
    graph: torch.cuda.CUDAGraph


class GraphActor(Actor):
    """Act by a CUDA graph for each number of environments."""

    def __init__(self, model: ActorCritic, weights: ndarray) -> None:
        super().__init__(model, weights)
        self.steps: dict[tuple[tuple[int, ...], ...], ActingStep] = {}

    def __call__(
        self,
        observations: ndarray,
        noise: ndarray | None,
        mask: ndarray = EMPTY,
        *,
        states: ndarray = EMPTY,
        features: ndarray = EMPTY,
    ) -> ndarray:
        if noise is None:
            return super().__call__(observations, noise, mask, states=states, features=features)
        given = [observations, noise, mask]
        key = tuple(array.shape for array in given)
        if key not in self.steps:
            self.steps[key] = self._capture(given, bool(features.size))
        step = self.steps[key]
        for pinned, array in zip(step.inputs, given, strict=True):
            pinned.numpy()[...] = array
        step.graph.replay()
        torch.cuda.current_stream(self.device).synchronize()
        actions, *shared = step.results
        for result in shared:
            features[:] = result
        return actions.numpy().copy()

    def _capture(self, given: list[ndarray], has_features: bool) -> ActingStep:
        inputs = [as_tensor(array).clone().pin_memory() for array in given]
        on_device = [tensor.to(self.device) for tensor in inputs]

        def act() -> list[Tensor]:
            for tensor, pinned in zip(on_device, inputs, strict=True):
                tensor.copy_(pinned, non_blocking=True)
            observations, noise, mask = on_device
            distribution, features, _ = self.model.act(observations, observations.new_empty(0))
            if mask.numel():
                distribution = distribution.masked(mask)
            return [distribution.sample(noise), *([features] if has_features else [])]

        results = [tensor.cpu().pin_memory() for tensor in act()]

        def step() -> None:
            for pinned, tensor in zip(results, act(), strict=True):
                pinned.copy_(tensor, non_blocking=True)

        return ActingStep(inputs, results, capture(step, self.device).graph)
