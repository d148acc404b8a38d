"""Learn in numpy: the gradient of PPO's objective for an mlp, written out.

It takes a third of torch's time. ppo.probe compares it with torch's, so that an edited loss or
network counts although it is written twice."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from ppo import losses
from ppo.callbacks import Callback, overriding
from ppo.config import Config
from ppo.envs.make import Spaces
from ppo.envs.observations import NUMBERS
from ppo.learner import Learner
from ppo.models.actor_critic import ActorCritic
from ppo.models.noise import EMPTY
from ppo.models.numpy_mlp import NumpyMLP, structure_of
from ppo.rollout import Batch, Metrics

Arrays = dict[str, ndarray]
Gradient = tuple[ndarray, Metrics]  # of a term of the loss, and what is reported of the term


class NumpyLearner(Learner):
    """The learner of an mlp on the CPU."""

    def __init__(
        self, model: ActorCritic, spaces: Spaces, callbacks: Sequence[Callback] = ()
    ) -> None:
        super().__init__(model, spaces, callbacks)
        structure = structure_of(model)
        assert structure
        self.mlp = NumpyMLP(structure, self.weights.numpy(), self.gradients.numpy())

    @classmethod
    def supports(cls, model: ActorCritic, config: Config, callbacks: Sequence[Callback]) -> bool:
        is_plain = config.device == "cpu" and not overriding(callbacks, "loss")
        return is_plain and structure_of(model) is not None

    @np.errstate(all="ignore")  # as torch; update() checks for values that are not finite
    def gradient(self, minibatch: Batch) -> Metrics:
        mlp, now = self.mlp, self.coefficients
        arrays = {name: x.numpy() for name, x in minibatch.items()}
        size = len(arrays["values"])
        arrays["inv_batch"] = np.full(size, 1 / size, np.float32)  # a product with it is the mean
        outputs = mlp.policy_trunk(arrays[NUMBERS])
        grad_policy, metrics = self._policy_gradients(outputs[-1], arrays)
        if not mlp.is_shared:
            mlp.policy_trunk.backward(outputs, grad_policy)
            outputs = mlp.value_trunk(arrays[NUMBERS])
        grad_value, value_metrics = self._value_gradients(outputs[-1], arrays)
        if mlp.is_shared:
            grad_value += grad_policy
        mlp.value_trunk.backward(outputs, grad_value)
        means = {"policy_loss": metrics["policy_loss"], "value_loss": value_metrics["value_loss"]}
        loss = means["policy_loss"] + now.value_coef * means["value_loss"]
        loss -= now.entropy_coef * metrics["entropy"]
        return {"loss": loss, **means, **metrics, **value_metrics}

    @np.errstate(all="ignore")
    def evaluate(self, batch: Batch) -> tuple[Any, Any]:
        mlp = self.mlp
        arrays = {name: x.numpy() for name, x in batch.items()}
        features: Any = arrays.get("features")
        if features is None and (mlp.is_shared or "actions" in arrays):
            features = mlp.policy_trunk(arrays[NUMBERS])[-1]
        of_value = features if mlp.is_shared else mlp.value_trunk(arrays[NUMBERS])[-1]
        values = torch.from_numpy(mlp.values(of_value))
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

    def _policy_gradients(self, features: ndarray, batch: Arrays) -> Gradient:
        """Write the policy head's gradients, by ppo.losses.clipped_surrogate and the entropy;
        return the gradient of its features (B, F), and metrics."""
        mlp, now = self.mlp, self.coefficients
        inv_batch, advantages = batch["inv_batch"], batch["advantages"]
        clip_coef = now.clip_coef
        distribution = mlp.distribution(features, batch.get("action_masks", EMPTY))
        log_ratio = distribution.log_prob(batch["actions"]) - batch["log_probs"]
        ratio = np.exp(np.minimum(log_ratio, losses.MAX_LOG_RATIO))
        gains = ratio * advantages
        clipped = np.minimum(np.maximum(ratio, 1 - clip_coef), 1 + clip_coef) * advantages
        has_gradient = (gains <= clipped) & (log_ratio <= losses.MAX_LOG_RATIO)
        gradient = np.where(has_gradient, gains * -inv_batch, np.float32(0))
        grad_outputs = distribution.backward(gradient, -now.entropy_coef * inv_batch[0])
        mlp.policy_head.backward(features, grad_outputs)
        return grad_outputs @ mlp.policy_head.weight, {
            "entropy": distribution.entropy() @ inv_batch,
            "policy_loss": -(np.minimum(gains, clipped) @ inv_batch),
            "approx_kl": (np.exp(log_ratio) - 1 - log_ratio) @ inv_batch,
            "clip_fraction": (np.abs(ratio - 1) > clip_coef) @ inv_batch,
        }

    def _value_gradients(self, features: ndarray, batch: Arrays) -> Gradient:
        """Write the value head's gradients, by ppo.losses.value_loss; return the gradient of its
        features (B, F), and metrics."""
        head, now = self.mlp.value_head, self.coefficients
        inv_batch, returns, old_values = batch["inv_batch"], batch["returns"], batch["values"]
        values = self.mlp.values(features)
        errors = values - returns
        squares = errors * errors
        gradient = errors * inv_batch
        metrics = {}
        if now.clip_value_coef is not None:
            moves = values - old_values
            clipped = np.minimum(np.maximum(moves, -now.clip_value_coef), now.clip_value_coef)
            clipped_squares = (old_values + clipped - returns) ** 2
            is_clipped = np.abs(moves) > now.clip_value_coef
            gradient[is_clipped & (clipped_squares > squares)] = 0
            squares = np.maximum(squares, clipped_squares)
            metrics["value_clip_fraction"] = is_clipped @ inv_batch
        grad_outputs = now.value_coef * gradient[:, None]
        head.backward(features, grad_outputs)
        return grad_outputs * head.weight, {"value_loss": 0.5 * (squares @ inv_batch), **metrics}
