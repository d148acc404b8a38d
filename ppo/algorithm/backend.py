"""What a learner computes by: torch, if no extension has another backend for its model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy import ndarray

from ppo.algorithm import losses
from ppo.algorithm.rollout import Batch, Metrics
from ppo.models.tensors import as_tensor

if TYPE_CHECKING:
    from ppo.algorithm.learner import Learner


class Backend(Protocol):
    """The arithmetic of a learner: its tables are tensors, or whatever else it computes with.

    has_modes: whether gradient steps need model.train(), as layers such as dropout do."""

    has_modes: bool

    def table(self, array: ndarray) -> Any:
        """Return an array (B, ...) in the form that this backend computes with."""

    def gather(self, batch: Batch, rows: ndarray) -> Batch:
        """Return some rows (b,) of a batch's tables."""

    def standardize(self, advantages: Any) -> Any:
        """Scale advantages (B,) to mean 0 and standard deviation 1 (see losses.standardize)."""

    def log_probs_and_values(self, batch: Batch) -> tuple[Any, Any]:
        """Return the log-probabilities of a batch's actions, and its values: (B,) each."""

    def values(self, *inputs: Any) -> Any:
        """Return the values (B,) of observations (B, *observation) and, if any, states (B, S)."""

    def join(self, chunks: Sequence[Any]) -> ndarray:
        """Return chunks (b,) of what the network returned as one array (B,)."""

    def compute_gradients(self, minibatch: Batch) -> Metrics:
        """Overwrite learner.gradients by the gradient of learner.objective(minibatch); return
        metrics: scalar tensors, or numbers."""

    def clip_gradients(self) -> Any:
        """Clip learner.gradients to --max_grad_norm; return its norm before (Pascanu et al. 2013,
        algorithm 1)."""


class TorchBackend:
    """Compute by torch, on the learner's device, with gradients by autograd."""

    has_modes = True

    def __init__(self, learner: "Learner") -> None:
        self.learner = learner

    def table(self, array: ndarray) -> Any:
        if array.dtype == np.float64:
            array = array.astype(np.float32)  # models compute in float32 at most
        return as_tensor(array).to(self.learner.weights.device)

    def gather(self, batch: Batch, rows: ndarray) -> Batch:
        index = self.table(rows)
        return {name: tensor.index_select(0, index) for name, tensor in batch.items()}

    def standardize(self, advantages: Any) -> Any:
        return losses.standardize(advantages)

    def log_probs_and_values(self, batch: Batch) -> tuple[Any, Any]:
        distribution, values = self.learner.forward(batch)
        return distribution.log_prob(batch["actions"]), values

    def values(self, *inputs: Any) -> Any:
        return self.learner.model(*inputs)[1]

    def join(self, chunks: Sequence[Any]) -> ndarray:
        return torch.cat([*chunks]).cpu().numpy()

    def compute_gradients(self, minibatch: Batch) -> Metrics:
        self.learner.gradients.zero_()
        loss, metrics = self.learner.objective(minibatch)
        torch.autograd.backward(loss)
        return {"loss": loss.detach(), **metrics}

    def clip_gradients(self) -> Any:
        gradients = self.learner.gradients
        norm = gradients.norm()
        if self.learner.config.max_grad_norm > 0:
            gradients *= (self.learner.config.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        return norm
