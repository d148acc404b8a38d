"""Learning with a model whose gradient is written out (models.numpy_mlp), and that of the PPO objective here."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ppo.config import Config
from ppo.learner import Learner
from ppo.rollout import Batch

LARGEST_LOG_RATIO = np.float32(20)  # as in ppo.losses


class NumpyLearner(Learner):
    """A Learner that comes to the same, as tests say, in a quarter of the time. mlp: the model by make_mlp(weights,
    gradients), vectors (P,) that it reads and writes."""

    def __init__(self, model: Any, config: Config, make_mlp: Any) -> None:
        super().__init__(model, config)
        self.mlp = make_mlp(self.weights.numpy(), self.gradients.numpy())

    @np.errstate(all="ignore")  # as torch: what is not finite, learn will see
    def differentiate(self, minibatch: Batch) -> dict[str, Any]:
        config, mlp, batch = self.config, self.mlp, {name: tensor.numpy() for name, tensor in minibatch.items()}
        clip, clip_value, entropy_coef = self.coefficients
        policy = mlp.features(mlp.policy_trunk, batch["observations"])
        is_shared = mlp.value_trunk is mlp.policy_trunk
        value = policy if is_shared else mlp.features(mlp.value_trunk, batch["observations"])
        columns = mlp.policy_head(policy[-1])
        distribution = mlp.distribution(columns, batch["actions"], batch.get("action_masks"))
        of_each = np.full(len(columns), 1 / len(columns), np.float32)  # a mean is the product with it
        advantages = batch["advantages"]
        if config.normalize_advantages == "minibatch" and len(advantages) > 1:
            advantages = advantages - advantages @ of_each
            deviation = np.sqrt(advantages @ advantages / (len(advantages) - 1))
            advantages /= deviation + np.float32(1e-8)
        policy_loss, of_log_probs, metrics = clipped_surrogate(
            distribution.log_prob, batch["log_probs"], advantages, clip, of_each
        )
        values = mlp.values(value[-1])
        value_loss, of_values, clipped_values = clipped_value_loss(
            values, batch["values"], batch["returns"], clip_value, of_each
        )
        entropy = distribution.entropy @ of_each
        of_columns = distribution.backward(of_log_probs, -entropy_coef / len(columns))
        mlp.backward(policy, value, of_columns, config.value_coef * of_values)
        loss = policy_loss + config.value_coef * value_loss - entropy_coef * entropy
        metrics = {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy, **metrics}
        return metrics if clip_value is None else {**metrics, "value_clip_fraction": clipped_values}

    def _clip_gradients(self) -> float:
        gradients, limit = self.mlp.gradients, self.config.max_grad_norm
        norm = math.sqrt(gradients @ gradients)
        if 0 < limit < norm:
            gradients *= limit / (norm + 1e-6)
        return norm

    def _evaluate(self, batch: Batch) -> tuple[Tensor, Tensor]:
        mlp, arrays = self.mlp, {name: tensor.numpy() for name, tensor in batch.items()}
        if "features" in arrays:
            policy = value = arrays["features"]
        else:
            policy = mlp.features(mlp.policy_trunk, arrays["observations"])[-1]
            is_shared = mlp.value_trunk is mlp.policy_trunk
            value = policy if is_shared else mlp.features(mlp.value_trunk, arrays["observations"])[-1]
        distribution = mlp.distribution(mlp.policy_head(policy), arrays["actions"], arrays.get("action_masks"))
        return torch.from_numpy(distribution.log_prob), torch.from_numpy(mlp.values(value).copy())

    def _values(self, *met: np.ndarray) -> np.ndarray:
        return self.mlp.values(self.mlp.features(self.mlp.value_trunk, met[0])[-1])


def clipped_surrogate(
    log_probs: np.ndarray, old: np.ndarray, advantages: np.ndarray, clip: float, of_each: np.ndarray
) -> tuple[float, np.ndarray, dict[str, float]]:
    """ppo.losses.clipped_surrogate (B,), its gradient by log_probs (B,), and what is watched about both."""
    log_ratio = log_probs - old
    ratio = np.exp(np.minimum(log_ratio, LARGEST_LOG_RATIO))
    gains = ratio * advantages
    limited = np.minimum(np.maximum(ratio, 1 - clip), 1 + clip) * advantages
    gradient = np.where((gains <= limited) & (log_ratio <= LARGEST_LOG_RATIO), gains * -of_each, np.float32(0))
    metrics = {
        "approx_kl": (np.exp(log_ratio) - 1 - log_ratio) @ of_each,
        "clip_fraction": (np.abs(ratio - 1) > clip) @ of_each,
    }
    return -(np.minimum(gains, limited) @ of_each), gradient, metrics


def clipped_value_loss(
    values: np.ndarray, old: np.ndarray, returns: np.ndarray, clip: float | None, of_each: np.ndarray
) -> tuple[float, np.ndarray, float]:
    """ppo.losses.value_loss (B,), its gradient by values (B,), and the share of values that moved by more than clip."""
    errors = values - returns
    squares = errors * errors
    if clip is None:
        return 0.5 * (squares @ of_each), errors * of_each, 0.0
    moves = values - old
    limited = old + np.minimum(np.maximum(moves, -clip), clip) - returns
    limited *= limited
    is_outside = np.abs(moves) > clip
    gradient = np.where(is_outside & (limited > squares), np.float32(0), errors * of_each)
    return 0.5 * (np.maximum(squares, limited) @ of_each), gradient, is_outside @ of_each
