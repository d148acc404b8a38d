"""Learning with a model whose gradient is written out (ppo.models.numpy_mlp), and that of the PPO objective here."""

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ppo.algorithm.learner import Learner
from ppo.algorithm.losses import LARGEST_LOG_RATIO
from ppo.algorithm.rollout import Batch
from ppo.config.config import Config

Arrays = dict[str, np.ndarray]
METRICS = (
    "policy_loss",
    "value_loss",
    "entropy",
    "approx_kl",
    "clip_fraction",
    "value_clip_fraction",
)
LARGE = 512  # rows of a minibatch, above which a second thread is worth waking


class NumpyLearner(Learner):
    """A Learner that comes to the same, as tests say, in a third of the time. mlp: the model by make_mlp(weights,
    gradients), vectors (P,) that it reads and writes. Of large minibatches policy and value are in a thread each."""

    def __init__(self, model: Any, config: Config, make_mlp: Any) -> None:
        super().__init__(model, config)
        self.mlp = make_mlp(self.weights.numpy(), self.gradients.numpy())
        self.is_shared = self.mlp.value_trunk is self.mlp.policy_trunk
        self.thread = ThreadPoolExecutor(1)

    @np.errstate(all="ignore")  # as torch: what is not finite, learn will see
    def compute_gradients(self, minibatch: Batch) -> dict[str, Any]:
        mlp, batch = self.mlp, {name: tensor.numpy() for name, tensor in minibatch.items()}
        inv_batch = np.full(
            len(batch["values"]), 1 / len(batch["values"]), np.float32
        )  # a mean is the product with it
        if self.is_shared:
            features = mlp.features(mlp.policy_trunk, batch["observations"])
            grad_features, metrics = self._policy(features[-1], batch, inv_batch)
            of_value, value_metrics = self._value(features[-1], batch, inv_batch)
            mlp.backward(mlp.policy_trunk, features, grad_features + of_value)
        else:
            value_side = (mlp.value_trunk, self._value, batch, inv_batch)
            aside = (
                self.thread.submit(self._through, *value_side) if len(inv_batch) >= LARGE else None
            )
            metrics = self._through(mlp.policy_trunk, self._policy, batch, inv_batch)
            value_metrics = aside.result() if aside else self._through(*value_side)
        metrics = {**metrics, **value_metrics}
        bonus = self.coefficients[2] * metrics["entropy"]
        loss = metrics["policy_loss"] + self.config.value_coef * metrics["value_loss"] - bonus
        return {"loss": loss, **{name: metrics[name] for name in METRICS if name in metrics}}

    def standardize(self, advantages: Tensor, moments: Any) -> Tensor:
        if moments or len(advantages) < 2:
            return super().standardize(advantages, moments)
        values = advantages.numpy()
        values = values - values.mean()
        values /= np.sqrt(values @ values / (len(values) - 1)) + np.float32(1e-8)
        return torch.from_numpy(values)

    @np.errstate(all="ignore")  # for its thread
    def _through(
        self, trunk: Any, part: Any, batch: Arrays, inv_batch: np.ndarray
    ) -> dict[str, Any]:
        """Write the gradient of a trunk of its own, and of the part of the objective that follows."""
        features = self.mlp.features(trunk, batch["observations"])
        of_features, metrics = part(features[-1], batch, inv_batch)
        self.mlp.backward(trunk, features, of_features)
        return metrics

    def _policy(
        self, features: np.ndarray, batch: Arrays, inv_batch: np.ndarray
    ) -> tuple[np.ndarray, dict]:
        """Write the gradient of the policy's head; returns that of its features (B, F), and metrics."""
        mlp, (clip, _, entropy_coef) = self.mlp, self.coefficients
        columns = mlp.policy_head(features)
        distribution = mlp.distribution(columns, batch["actions"], batch.get("action_masks"))
        log_probs = (distribution.log_prob, batch["log_probs"])
        loss, of_log_probs, metrics = clipped_surrogate(
            *log_probs, batch["advantages"], clip, inv_batch
        )
        grad_logits = distribution.backward(of_log_probs, -entropy_coef * inv_batch[0])
        mlp.policy_head.backward(features, grad_logits)
        return grad_logits @ mlp.policy_head.weight, {
            "policy_loss": loss,
            "entropy": distribution.entropy @ inv_batch,
            **metrics,
        }

    def _value(
        self, features: np.ndarray, batch: Arrays, inv_batch: np.ndarray
    ) -> tuple[np.ndarray, dict]:
        """The same of the value's."""
        mlp, clip = self.mlp, self.coefficients[1]
        targets = (batch["values"], batch["returns"])
        loss, of_values, clipped = clipped_value_loss(
            mlp.values(features), *targets, clip, inv_batch
        )
        of_values = self.config.value_coef * of_values[:, None]
        mlp.value_head.backward(features, of_values)
        metrics = (
            {"value_loss": loss}
            if clip is None
            else {"value_loss": loss, "value_clip_fraction": clipped}
        )
        return of_values * mlp.value_head.weight, metrics

    def _clip_gradients(self) -> float:
        gradients, limit = self.mlp.gradients, self.config.max_grad_norm
        norm = math.sqrt(gradients @ gradients)
        if 0 < limit < norm:
            gradients *= limit / (norm + 1e-6)
        return norm

    @np.errstate(all="ignore")
    def _log_probs_and_values_part(self, batch: Batch) -> tuple[Tensor, Tensor]:
        mlp, arrays = self.mlp, {name: tensor.numpy() for name, tensor in batch.items()}
        if "features" in arrays:
            policy = value = arrays["features"]
        else:
            policy = mlp.features(mlp.policy_trunk, arrays["observations"])[-1]
            value = (
                policy
                if self.is_shared
                else mlp.features(mlp.value_trunk, arrays["observations"])[-1]
            )
        distribution = mlp.distribution(
            mlp.policy_head(policy), arrays["actions"], arrays.get("action_masks")
        )
        return torch.from_numpy(distribution.log_prob), torch.from_numpy(mlp.values(value).copy())

    def _predict_values(self, *met: np.ndarray) -> np.ndarray:
        return self.mlp.values(self.mlp.features(self.mlp.value_trunk, met[0])[-1])


def clipped_surrogate(
    log_probs: np.ndarray,
    old: np.ndarray,
    advantages: np.ndarray,
    clip: float,
    inv_batch: np.ndarray,
) -> tuple[float, np.ndarray, dict[str, float]]:
    """ppo.algorithm.losses.clipped_surrogate (B,), its gradient by log_probs (B,), and what is watched about both."""
    log_ratio = log_probs - old
    ratio = np.exp(np.minimum(log_ratio, LARGEST_LOG_RATIO))
    gains = ratio * advantages
    limited = np.minimum(np.maximum(ratio, 1 - clip), 1 + clip) * advantages
    gradient = np.where(
        (gains <= limited) & (log_ratio <= LARGEST_LOG_RATIO), gains * -inv_batch, np.float32(0)
    )
    metrics = {
        "approx_kl": (np.exp(log_ratio) - 1 - log_ratio) @ inv_batch,
        "clip_fraction": (np.abs(ratio - 1) > clip) @ inv_batch,
    }
    return -(np.minimum(gains, limited) @ inv_batch), gradient, metrics


def clipped_value_loss(
    values: np.ndarray,
    old: np.ndarray,
    returns: np.ndarray,
    clip: float | None,
    inv_batch: np.ndarray,
) -> tuple[float, np.ndarray, float]:
    """ppo.algorithm.losses.value_loss (B,), its gradient by values (B,), and the share of values that moved by more than clip."""
    errors = values - returns
    squares = errors * errors
    if clip is None:
        return 0.5 * (squares @ inv_batch), errors * inv_batch, 0.0
    moves = values - old
    limited = old + np.minimum(np.maximum(moves, -clip), clip) - returns
    limited *= limited
    is_outside = np.abs(moves) > clip
    gradient = np.where(is_outside & (limited > squares), np.float32(0), errors * inv_batch)
    return 0.5 * (np.maximum(squares, limited) @ inv_batch), gradient, is_outside @ inv_batch
