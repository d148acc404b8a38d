"""Gradient steps as CUDA graphs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ppo.algorithm.backend import TorchBackend
from ppo.algorithm.learner import Learner
from ppo.algorithm.rollout import Batch, Metrics
from ppo.extras.cuda.graphs import Captured, can_capture, capture

# Which may change in each update.
COEFFICIENTS = ("clip_coef", "clip_value_coef", "value_coef", "entropy_coef")
OBJECTIVE = ("loss", "objective", "forward")  # methods that a learner of the user's may override


def make_backend(learner: Learner) -> "GraphBackend | None":
    """Return the backend of a learner on a GPU whose network can be captured and whose objective is
    PPO's own; None of others."""
    kind = type(learner)
    is_own = learner.terms or any(
        getattr(kind, name) is not getattr(Learner, name) for name in OBJECTIVE
    )
    config = learner.config
    if is_own or not can_capture(learner.model, config, config.device):
        return None
    return GraphBackend(learner)


class GradientStep(NamedTuple):
    """The gradient of a minibatch of one shape: its inputs, which are overwritten before it is
    computed, and the names of its metrics."""

    inputs: Batch
    names: list[str]
    captured: Captured[Tensor]


class GraphBackend(TorchBackend):
    """Compute by torch, with a CUDA graph for each shape of minibatches.

    A gradient step of a small network is some 200 kernels, which a GPU carries out faster than a
    CPU starts them one by one."""

    has_modes = False  # the networks that are captured have no layers that need them

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner)
        self.device = learner.weights.device
        self.steps: dict[Any, GradientStep] = {}
        self.clip: dict[float, Captured[Tensor]] = {}
        self.coefficients = {
            name: torch.tensor(float(value), device=self.device)
            for name in COEFFICIENTS
            if (value := getattr(learner, name)) is not None
        }

    def compute_gradients(self, minibatch: Batch) -> Metrics:
        given = {name: getattr(self.learner, name) for name in self.coefficients}
        for name, coefficient in self.coefficients.items():
            coefficient.fill_(given[name])
        key = tuple((name, tensor.shape) for name, tensor in minibatch.items())
        if key not in self.steps:
            self.steps[key] = self._capture_step(minibatch)
        inputs, names, (graph, metrics) = self.steps[key]
        for name, tensor in minibatch.items():
            inputs[name].copy_(tensor)
        graph.replay()
        return dict(zip(names, metrics.clone().unbind(), strict=True))

    def clip_gradients(self) -> Any:
        limit = self.learner.config.max_grad_norm
        if limit not in self.clip:
            gradients = self.learner.gradients.clone()  # which the warm-up would clip
            self.clip[limit] = capture(super().clip_gradients, self.device)
            self.learner.gradients.copy_(gradients)
        graph, norm = self.clip[limit]
        graph.replay()
        return norm.clone()

    def _capture_step(self, minibatch: Batch) -> GradientStep:
        inputs = {name: tensor.clone() for name, tensor in minibatch.items()}
        names: list[str] = []

        def compute() -> Tensor:
            metrics = super(GraphBackend, self).compute_gradients(inputs)
            names[:] = metrics
            return torch.stack([*metrics.values()])

        with self._coefficients_on_device():
            return GradientStep(inputs, names, capture(compute, self.device))

    @contextmanager
    def _coefficients_on_device(self) -> Iterator[None]:
        """Let the learner's coefficients be tensors, which a graph reads anew each time."""
        given = {name: getattr(self.learner, name) for name in self.coefficients}
        vars(self.learner).update(self.coefficients)
        try:
            yield
        finally:
            vars(self.learner).update(given)
