"""Learn in numpy: the gradient of PPO's objective for an mlp, written out.

It takes a third of torch's time. ppo.probe compares both, so that an edit of torch's counts."""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from ppo.callbacks import Callback, overriding
from ppo.config import Config
from ppo.envs.observations import NUMBERS
from ppo.learner import Learner
from ppo.losses import MAX_LOG_RATIO
from ppo.models.actor_critic import ActorCritic
from ppo.models.noise import EMPTY
from ppo.models.numpy_mlp import NumpyMLP, structure_of
from ppo.rollout import Batch, Metrics


class NumpyLearner(Learner):
    @classmethod
    def supports(cls, model: ActorCritic, config: Config, callbacks: Sequence[Callback]) -> bool:
        is_plain = config.device == "cpu" and not overriding(callbacks, "loss")
        return is_plain and structure_of(model) is not None

    @cached_property
    def mlp(self) -> NumpyMLP:
        structure: Any = structure_of(self.model)
        return NumpyMLP(structure, self.weights.numpy(), self.gradients.numpy())

    @np.errstate(all="ignore")  # as torch; update() checks for values that are not finite
    def gradient(self, minibatch: Batch) -> Metrics:
        mlp = self.mlp
        now = self.coefficients
        arrays = {name: x.numpy() for name, x in minibatch.items()}
        advantages = arrays["advantages"]
        size = len(advantages)
        inv_batch = np.full(size, 1 / size, np.float32)  # a product with it is the mean
        outputs = mlp.forward(mlp.policy_layers, arrays[NUMBERS])
        distribution = mlp.distribution(outputs[-1], arrays.get("action_masks", EMPTY))
        log_ratio = distribution.log_prob(arrays["actions"]) - arrays["log_probs"]
        ratio = np.exp(np.minimum(log_ratio, MAX_LOG_RATIO))
        gains = ratio * advantages  # ppo.losses.clipped_surrogate
        clipped = np.minimum(np.maximum(ratio, 1 - now.clip_coef), 1 + now.clip_coef) * advantages
        has_gradient = (gains <= clipped) & (log_ratio <= MAX_LOG_RATIO)
        gradient = np.where(has_gradient, gains * -inv_batch, np.float32(0))
        gradient = distribution.backward(gradient, -now.entropy_coef * inv_batch[0])
        mlp.policy_head.backward(outputs[-1], gradient)
        gradient = gradient @ mlp.policy_head.weight
        if not mlp.is_shared:
            mlp.backward(mlp.policy_layers, outputs, gradient)
            outputs = mlp.forward(mlp.value_layers, arrays[NUMBERS])
        grad_value, value_metrics = self._value_gradients(outputs[-1], arrays, inv_batch)
        if mlp.is_shared:
            grad_value += gradient
        mlp.backward(mlp.value_layers, outputs, grad_value)
        policy_loss = -(np.minimum(gains, clipped) @ inv_batch)
        value_loss = value_metrics["value_loss"]
        entropy = distribution.entropy() @ inv_batch
        return {
            "loss": policy_loss + now.value_coef * value_loss - now.entropy_coef * entropy,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": (np.exp(log_ratio) - 1 - log_ratio) @ inv_batch,
            "clip_fraction": (np.abs(ratio - 1) > now.clip_coef) @ inv_batch,
            **value_metrics,
        }

    @np.errstate(all="ignore")
    def evaluate(self, batch: Batch) -> tuple[Any, Any]:
        mlp = self.mlp
        arrays = {name: x.numpy() for name, x in batch.items()}
        features: Any = arrays.get("features")
        if features is None:
            features = mlp.forward(mlp.value_layers, arrays[NUMBERS])[-1]
        values = torch.from_numpy(mlp.value_head(features)[:, 0])
        if "actions" not in arrays:
            return None, values
        if not mlp.is_shared:
            features = mlp.forward(mlp.policy_layers, arrays[NUMBERS])[-1]
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

    def _value_gradients(
        self, features: ndarray, batch: Batch, inv_batch: ndarray
    ) -> tuple[ndarray, Metrics]:
        """Write the value head's gradients, by ppo.losses.value_loss; return the gradient of its
        features (B, F), and metrics."""
        head = self.mlp.value_head
        limit = self.coefficients.clip_value_coef
        values = head(features)[:, 0]
        errors = values - batch["returns"]
        squares = errors * errors
        gradient = errors * inv_batch
        metrics = {}
        if limit is not None:
            moves = values - batch["values"]
            clipped = batch["values"] + np.minimum(np.maximum(moves, -limit), limit)
            clipped_squares = (clipped - batch["returns"]) ** 2
            is_clipped = np.abs(moves) > limit
            gradient[is_clipped & (clipped_squares > squares)] = 0
            squares = np.maximum(squares, clipped_squares)
            metrics["value_clip_fraction"] = is_clipped @ inv_batch
        metrics["value_loss"] = 0.5 * (squares @ inv_batch)
        grad_outputs = self.coefficients.value_coef * gradient[:, None]
        head.backward(features, grad_outputs)
        return grad_outputs * head.weight, metrics
