"""Learn in numpy: the gradient of PPO's objective for an mlp, written out.

It takes a third of torch's time. difference() compares it with torch's, so that an edited loss or
network counts although it is written twice."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from ppo import losses
from ppo.callbacks import Callback
from ppo.config import Config
from ppo.envs.observations import NUMBERS, Layout
from ppo.learner import Learner
from ppo.models.actor_critic import ActorCritic
from ppo.models.noise import EMPTY
from ppo.models.numpy_mlp import NumpyMLP, NumpyTrunk, structure_of
from ppo.rollout import Batch, Metrics

Arrays = dict[str, ndarray]
Gradient = tuple[ndarray, Metrics]  # of a term of the loss, and what is reported of the term
HeadGradients = Callable[[ndarray, Arrays], Gradient]  # from features (B, F) and a minibatch


class NumpyLearner(Learner):
    """The learner of an mlp on the CPU."""

    def __init__(
        self,
        model: ActorCritic,
        config: Config,
        layout: Layout,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        super().__init__(model, config, layout, callbacks)
        structure = structure_of(model)
        assert structure
        self.mlp = NumpyMLP(structure, self.weights.numpy(), self.gradients.numpy())

    @classmethod
    def supports(cls, model: ActorCritic, config: Config, callbacks: Sequence[Callback]) -> bool:
        adds_loss = any(type(x).loss is not Callback.loss for x in callbacks)
        return config.device == "cpu" and not adds_loss and structure_of(model) is not None

    def set_training(self, is_training: bool) -> None:
        """Do nothing: an mlp is the same in both modes."""

    @np.errstate(all="ignore")  # as torch; update() checks for values that are not finite
    def gradient(self, minibatch: Batch) -> Metrics:
        mlp = self.mlp
        arrays = {name: x.numpy() for name, x in minibatch.items()}
        size = len(arrays["values"])
        arrays["inv_batch"] = np.full(size, 1 / size, np.float32)  # a product with it is the mean
        if mlp.is_shared:
            outputs = mlp.policy_trunk(arrays[NUMBERS])
            grad_policy, metrics = self._policy_gradients(outputs[-1], arrays)
            grad_value, value_metrics = self._value_gradients(outputs[-1], arrays)
            mlp.policy_trunk.backward(outputs, grad_policy + grad_value)
        else:
            metrics = self._backprop_network(mlp.policy_trunk, self._policy_gradients, arrays)
            value_metrics = self._backprop_network(mlp.value_trunk, self._value_gradients, arrays)
        now = self.coefficients
        policy_loss = metrics["policy_loss"]
        value_loss = value_metrics["value_loss"]
        loss = policy_loss + now.value_coef * value_loss - now.entropy_coef * metrics["entropy"]
        means = {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss}
        return {**means, **metrics, **value_metrics}

    @np.errstate(all="ignore")
    def evaluate(self, batch: Batch) -> tuple[Any, Any]:
        mlp = self.mlp
        arrays = {name: x.numpy() for name, x in batch.items()}
        observations = arrays[NUMBERS]
        features = arrays.get("features")
        if features is None and (mlp.is_shared or "actions" in arrays):
            features = mlp.policy_trunk(observations)[-1]
        of_value = features if mlp.is_shared else mlp.value_trunk(observations)[-1]
        values = torch.from_numpy(mlp.values(of_value).copy())
        if "actions" not in arrays:
            return None, values
        distribution = mlp.distribution(features, arrays.get("action_masks", EMPTY))
        return torch.from_numpy(distribution.log_prob(arrays["actions"])), values

    def standardize(self, advantages: Tensor) -> Tensor:
        array = advantages.numpy()
        size = len(array)
        if size < 2:
            return advantages
        centred = array - array.sum() / np.float32(size)
        centred /= np.sqrt(centred @ centred / (size - 1)) + np.float32(1e-8)
        return torch.from_numpy(centred)

    def clip_gradient(self) -> float:
        gradients = self.mlp.gradients
        limit = self.config.max_grad_norm
        norm = math.sqrt(gradients @ gradients)
        if 0 < limit < norm:
            gradients *= limit / (norm + 1e-6)
        return norm

    def _backprop_network(
        self, trunk: NumpyTrunk, head_gradients: HeadGradients, arrays: Arrays
    ) -> Metrics:
        """Write the gradients of a trunk that is not shared, and of its head; return metrics."""
        outputs = trunk(arrays[NUMBERS])
        grad_features, metrics = head_gradients(outputs[-1], arrays)
        trunk.backward(outputs, grad_features)
        return dict(metrics)

    def _policy_gradients(self, features: ndarray, arrays: Arrays) -> Gradient:
        """Write the policy head's gradients; return that of its features (B, F), and metrics."""
        mlp, now = self.mlp, self.coefficients
        inv_batch = arrays["inv_batch"]
        distribution = mlp.distribution(features, arrays.get("action_masks", EMPTY))
        log_probs = distribution.log_prob(arrays["actions"])
        gradient, metrics = clipped_surrogate(log_probs, arrays, now.clip_coef)
        metrics = {"entropy": distribution.entropy() @ inv_batch, **metrics}
        grad_outputs = distribution.backward(gradient, -now.entropy_coef * inv_batch[0])
        mlp.policy_head.backward(features, grad_outputs)
        return grad_outputs @ mlp.policy_head.weight, metrics

    def _value_gradients(self, features: ndarray, arrays: Arrays) -> Gradient:
        """Write the value head's gradients; return that of its features (B, F), and metrics."""
        head, now = self.mlp.value_head, self.coefficients
        values = self.mlp.values(features)
        gradient, metrics = value_loss(values, arrays, now.clip_value_coef)
        grad_outputs = now.value_coef * gradient[:, None]
        head.backward(features, grad_outputs)
        return grad_outputs * head.weight, metrics


def clipped_surrogate(log_probs: ndarray, batch: Arrays, clip_coef: float) -> Gradient:
    """Compute the gradient of ppo.losses.clipped_surrogate by log_probs, and metrics.

    All arrays: (B,)."""
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
    """Compute the gradient of ppo.losses.value_loss by values, and metrics.

    All arrays: (B,)."""
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
