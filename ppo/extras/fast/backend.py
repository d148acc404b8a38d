"""Learn in numpy: the gradient of PPO's objective for an mlp, written out."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy import ndarray

from ppo.algorithm import losses
from ppo.algorithm.learner import Learner
from ppo.algorithm.rollout import Metrics
from ppo.extras.fast.mlp import Layout, NumpyMLP, NumpyVectorTrunk, layout_of
from ppo.models.noise import EMPTY

Arrays = dict[str, ndarray]
Gradient = tuple[ndarray, Metrics]  # of a term of the loss, and what is reported of the term
# From features (B, F) and a minibatch.
HeadGradients = Callable[[ndarray, Arrays], Gradient]
T = TypeVar("T")
MIN_WORK_FOR_THREADS = 12_000_000  # rows times weights from which a second thread is worth waking
# Methods that a learner of the user's may override without changing gradients.
BESIDE_GRADIENTS = {"__init__", "advantages", "state_dict", "load_state_dict"}


def make_backend(learner: Learner) -> "NumpyBackend | None":
    """Return the backend of a learner on the CPU whose network is an mlp and whose objective is
    PPO's own; None of others."""
    layout = layout_of(learner.model)
    is_own = learner.terms or not keeps_gradients(type(learner))
    if learner.config.device != "cpu" or not layout or layout.cell or is_own:
        return None
    return NumpyBackend(learner, layout)


class NumpyBackend:
    """Compute in numpy: a third of torch's time, the same results up to rounding (tests check it).

    Tables are numpy arrays, which share the rollout's memory. If policy and value share no trunk,
    large minibatches take a thread for each."""

    has_modes = False  # setting them would take 0.1 ms

    def __init__(self, learner: Learner, layout: Layout) -> None:
        self.learner = learner
        vectors = learner.weights.numpy(), learner.gradients.numpy()
        scale = getattr(learner.model.value_head, "numpy_scale", None)
        self.mlp = NumpyMLP(layout, *vectors, scale and scale())
        self.value_thread = ThreadPoolExecutor(1)

    def table(self, array: ndarray) -> ndarray:
        """Return an array as it is."""
        return array

    @np.errstate(all="ignore")  # torch is silent, too; update() checks for non-finite values
    def compute_gradients(self, minibatch: Arrays) -> Metrics:
        mlp = self.mlp
        size = len(minibatch["values"])
        # The product with it is the mean.
        minibatch = {**minibatch, "inv_batch": np.full(size, 1 / size, np.float32)}
        if mlp.is_shared:
            outputs = mlp.policy_trunk(minibatch["observations"])
            grad_policy, metrics = self._policy_gradients(outputs[-1], minibatch)
            grad_value, value_metrics = self._value_gradients(outputs[-1], minibatch)
            mlp.policy_trunk.backward(outputs, grad_policy + grad_value)
        else:
            arguments = (mlp.value_trunk, self._value_gradients, minibatch)
            value_part = self._maybe_in_thread(size, self._backprop_network, *arguments)
            metrics = self._backprop_network(mlp.policy_trunk, self._policy_gradients, minibatch)
            value_metrics = value_part()
        policy_loss = metrics["policy_loss"]
        value_loss = value_metrics["value_loss"]
        loss = policy_loss + self.learner.value_coef * value_loss
        loss -= self.learner.entropy_coef * metrics["entropy"]
        means = {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss}
        return {**means, **metrics, **value_metrics}

    def standardize(self, advantages: ndarray) -> ndarray:
        size = len(advantages)
        if size < 2:
            return advantages
        values = advantages - advantages.sum() / np.float32(size)
        values /= np.sqrt(values @ values / (size - 1)) + np.float32(1e-8)
        return values

    def gather(self, batch: Arrays, rows: ndarray) -> Arrays:
        return {name: table.take(rows, 0) for name, table in batch.items()}

    def join(self, chunks: Sequence[ndarray]) -> ndarray:
        return np.concatenate(chunks)

    def _maybe_in_thread(
        self, num_rows: int, function: Callable[..., T], *arguments: Any
    ) -> Callable[[], T]:
        """Call a function in the second thread if there are many rows; return a function that waits
        for the result, which is bit-identical in either thread."""
        call = partial(function, *arguments)
        if num_rows * len(self.learner.weights) < MIN_WORK_FOR_THREADS:
            return call
        return self.value_thread.submit(call).result

    @np.errstate(all="ignore")  # which holds for one thread only
    def _backprop_network(
        self, trunk: NumpyVectorTrunk, head_gradients: HeadGradients, minibatch: Arrays
    ) -> Metrics:
        """Write the gradients of a trunk that is not shared, and of its head; return metrics."""
        outputs = trunk(minibatch["observations"])
        grad_features, metrics = head_gradients(outputs[-1], minibatch)
        trunk.backward(outputs, grad_features)
        return dict(metrics)

    def _policy_gradients(self, features: ndarray, batch: Arrays) -> Gradient:
        """Write the policy head's gradients; return that of its features (B, F), and metrics."""
        mlp = self.mlp
        inv_batch = batch["inv_batch"]
        distribution = mlp.distribution(features, batch.get("action_masks", EMPTY))
        log_probs = distribution.log_prob(batch["actions"])
        gradient, metrics = clipped_surrogate(log_probs, batch, self.learner.clip_coef)
        metrics = {"entropy": distribution.entropy() @ inv_batch, **metrics}
        grad_outputs = distribution.backward(gradient, -self.learner.entropy_coef * inv_batch[0])
        mlp.policy_head.backward(features, grad_outputs)
        return grad_outputs @ mlp.policy_head.weight, metrics

    def _value_gradients(self, features: ndarray, batch: Arrays) -> Gradient:
        """Write the value head's gradients; return that of its features (B, F), and metrics."""
        head = self.mlp.value_head
        values = self.mlp.values(features)
        gradient, metrics = value_loss(values, batch, self.learner.clip_value_coef)
        grad_outputs = self.learner.value_coef * gradient[:, None]
        if self.mlp.value_scale:
            grad_outputs *= self.mlp.value_scale[1]
        head.backward(features, grad_outputs)
        return grad_outputs * head.weight, metrics

    def clip_gradients(self) -> float:
        gradients = self.mlp.gradients
        limit = self.learner.config.max_grad_norm
        norm = math.sqrt(gradients @ gradients)
        if 0 < limit < norm:
            gradients *= limit / (norm + 1e-6)
        return norm

    @np.errstate(all="ignore")
    def log_probs_and_values(self, batch: Arrays) -> tuple[ndarray, ndarray]:
        mlp = self.mlp
        observations = batch["observations"]
        if not mlp.is_shared:
            values = self._maybe_in_thread(len(observations), self.values, observations)
        features = batch.get("features")
        if features is None:
            features = mlp.policy_trunk(observations)[-1]
        if mlp.is_shared:
            values = partial(mlp.values, features)
        distribution = mlp.distribution(features, batch.get("action_masks", EMPTY))
        return distribution.log_prob(batch["actions"]), values()

    @np.errstate(all="ignore")
    def values(self, *inputs: ndarray) -> ndarray:
        return self.mlp.values(self.mlp.value_trunk(inputs[0])[-1])


def keeps_gradients(own: type[Learner]) -> bool:
    """Return whether a class derived from Learner has its gradients: whether it overrides none of
    its methods but those of BESIDE_GRADIENTS."""
    methods = [name for name, value in vars(Learner).items() if callable(value)]
    overridden = {name for name in methods if getattr(own, name) is not getattr(Learner, name)}
    return overridden <= BESIDE_GRADIENTS


def clipped_surrogate(log_probs: ndarray, batch: Arrays, clip_coef: float) -> Gradient:
    """Compute the gradient of ppo.algorithm.losses.clipped_surrogate by log_probs, and metrics.

    All arrays: (B,).
    """
    inv_batch = batch["inv_batch"]
    log_ratio = log_probs - batch["log_probs"]
    ratio = np.exp(np.minimum(log_ratio, losses.MAX_LOG_RATIO))
    gains = ratio * batch["advantages"]
    clipped = np.minimum(np.maximum(ratio, 1 - clip_coef), 1 + clip_coef) * batch["advantages"]
    has_gradient = (gains <= clipped) & (log_ratio <= losses.MAX_LOG_RATIO)
    return np.where(has_gradient, gains * -inv_batch, np.float32(0)), {
        "policy_loss": -(np.minimum(gains, clipped) @ inv_batch),
        "approx_kl": (np.exp(log_ratio) - 1 - log_ratio) @ inv_batch,
        "clip_fraction": (np.abs(ratio - 1) > clip_coef) @ inv_batch,
    }


def value_loss(values: ndarray, batch: Arrays, clip_coef: float | None) -> Gradient:
    """Compute the gradient of ppo.algorithm.losses.value_loss by values, and metrics.

    All arrays: (B,).
    """
    inv_batch = batch["inv_batch"]
    errors = values - batch["returns"]
    squares = errors * errors
    gradient = errors * inv_batch
    if clip_coef is None:
        return gradient, {"value_loss": 0.5 * (squares @ inv_batch)}
    moves = values - batch["values"]
    clipped = np.minimum(np.maximum(moves, -clip_coef), clip_coef)
    clipped_squares = batch["values"] + clipped - batch["returns"]
    clipped_squares *= clipped_squares
    is_clipped = np.abs(moves) > clip_coef
    is_flat = is_clipped & (clipped_squares > squares)
    return np.where(is_flat, np.float32(0), gradient), {
        "value_loss": 0.5 * (np.maximum(squares, clipped_squares) @ inv_batch),
        "value_clip_fraction": is_clipped @ inv_batch,
    }
