"""Learn in numpy: the gradient of PPO's objective for an mlp, written out.

It takes a third of torch's time. difference() compares both: edits of the torch code count."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy import ndarray

from ppo.callbacks import Callback, overriding
from ppo.config import Config
from ppo.envs.make import Spaces
from ppo.envs.observations import NUMBERS
from ppo.learner import Learner
from ppo.losses import MAX_LOG_RATIO
from ppo.models import MakeTorchActor, make_actor_of
from ppo.models.actor_critic import ActorCritic
from ppo.models.numpy_mlp import EMPTY, NumpyLinear, NumpyMLP, structure_of
from ppo.rollout import Batch, Metrics

NUM_ROWS = 64  # that numpy and torch are compared on
MIN_WORK = 12_000_000  # rows times weights for which waking a second thread is worth it


class NumpyLearner(Learner):
    """The learner of an mlp on the CPU. The value network of a large minibatch is computed by a
    thread of the standard library's, next to the policy's and with the same bits."""

    def __init__(
        self, model: ActorCritic, spaces: Spaces, callbacks: Sequence[Callback] = ()
    ) -> None:
        super().__init__(model, spaces, callbacks)
        structure: Any = structure_of(model)
        self.mlp = NumpyMLP(structure, self.weights.numpy(), self.gradients.numpy())
        self.thread = ThreadPoolExecutor(1, "", torch.set_flush_denormal, (True,))

    @classmethod
    def supports(cls, model: ActorCritic, config: Config, callbacks: Sequence[Callback]) -> bool:
        """Return whether this class can learn a model with these settings."""
        is_plain = config.device == "cpu" and not overriding(callbacks, "loss")
        return is_plain and structure_of(model) is not None

    @np.errstate(all="ignore")  # as torch; update() checks for values that are not finite
    def gradient(self, minibatch: Batch) -> Metrics:
        mlp = self.mlp
        now = self.coefficients
        arrays = {name: np.asarray(x) for name, x in minibatch.items()}
        size = len(arrays["values"])
        arrays["average"] = np.full(size, 1 / size, np.float32)  # x @ average is the mean of x
        if mlp.is_shared:
            outputs = mlp.forward(mlp.policy_layers, arrays[NUMBERS])
            gradient, metrics = self._policy_gradients(outputs[-1], arrays)
            grad_value, value_metrics = self._value_gradients(outputs[-1], arrays)
            mlp.backward(mlp.policy_layers, outputs, gradient + grad_value)
        else:
            arguments = (mlp.value_layers, self._value_gradients, arrays)
            value_part = self._start(size, self._backprop, *arguments)
            metrics = self._backprop(mlp.policy_layers, self._policy_gradients, arrays)
            value_metrics = value_part()
        metrics |= value_metrics
        loss = metrics["policy_loss"] - now.entropy_coef * metrics["entropy"]
        return {"loss": loss + now.value_coef * metrics["value_loss"], **metrics}

    def _start(self, size: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """Start a function in the thread if there is enough work; return what waits for it."""
        if self.config.threads == 1 or size * len(self.weights) < MIN_WORK:
            return partial(function, *arguments)
        return self.thread.submit(function, *arguments).result

    @np.errstate(all="ignore")  # of this thread
    def _backprop(self, layers: list[NumpyLinear], head_gradients: Any, arrays: Batch) -> Metrics:
        outputs = self.mlp.forward(layers, arrays[NUMBERS])
        gradient, metrics = head_gradients(outputs[-1], arrays)
        self.mlp.backward(layers, outputs, gradient)
        return dict(metrics)

    @np.errstate(all="ignore")
    def evaluate(self, batch: Batch) -> tuple[Any, Any]:
        mlp = self.mlp
        arrays = {name: np.asarray(x) for name, x in batch.items()}
        observations = arrays[NUMBERS]
        features: Any = arrays.get("features")
        if mlp.is_shared and features is None:
            features = mlp.forward(mlp.policy_layers, observations)[-1]
        value_part = self._start(len(observations), mlp.values, observations, features)
        log_probs = None
        if "actions" in arrays:
            if not mlp.is_shared:
                features = mlp.forward(mlp.policy_layers, observations)[-1]
            distribution = mlp.distribution(features, arrays.get("action_masks", EMPTY))
            log_probs = torch.from_numpy(distribution.log_prob(arrays["actions"]))
        return log_probs, torch.from_numpy(value_part())

    def gather(self, batch: Batch, rows: ndarray) -> Batch:
        return {name: np.asarray(x).take(rows, 0) for name, x in batch.items()}

    def standardize(self, advantages: Any) -> Any:
        array = np.asarray(advantages)
        size = len(array)
        if size < 2:
            return array
        centered = array - array.sum() / np.float32(size)
        centered /= np.sqrt(centered @ centered / (size - 1)) + np.float32(1e-8)
        return centered

    def clip_gradient(self) -> float:
        gradients = self.mlp.gradients
        limit = self.config.max_grad_norm
        norm = math.sqrt(gradients @ gradients)
        if 0 < limit < norm:
            gradients *= limit / (norm + 1e-6)
        return norm

    def _policy_gradients(self, features: ndarray, arrays: Batch) -> tuple[ndarray, Metrics]:
        """Write the policy head's gradients, by ppo.losses.clipped_surrogate; return the gradient
        of its features (B, F), and metrics."""
        head, average = self.mlp.policy_head, arrays["average"]
        now = self.coefficients
        advantages = arrays["advantages"]
        distribution = self.mlp.distribution(features, arrays.get("action_masks", EMPTY))
        log_ratio = distribution.log_prob(arrays["actions"]) - arrays["log_probs"]
        ratio = np.exp(np.minimum(log_ratio, MAX_LOG_RATIO))
        gains = ratio * advantages
        clipped = np.minimum(np.maximum(ratio, 1 - now.clip_coef), 1 + now.clip_coef) * advantages
        has_gradient = (gains <= clipped) & (log_ratio <= MAX_LOG_RATIO)
        gradient = np.where(has_gradient, gains * -average, np.float32(0))
        grad_outputs = distribution.backward(gradient, -now.entropy_coef * average[0])
        head.backward(features, grad_outputs)
        return grad_outputs @ head.weight, {
            "entropy": distribution.entropy() @ average,
            "policy_loss": -(np.minimum(gains, clipped) @ average),
            "approx_kl": (np.exp(log_ratio) - 1 - log_ratio) @ average,
            "clip_fraction": (np.abs(ratio - 1) > now.clip_coef) @ average,
        }

    def _value_gradients(self, features: ndarray, arrays: Batch) -> tuple[ndarray, Metrics]:
        """Write the value head's gradients, by ppo.losses.value_loss; return the gradient of its
        features (B, F), and metrics."""
        head, average = self.mlp.value_head, arrays["average"]
        limit = self.coefficients.clip_value_coef
        values = head(features)[:, 0]
        errors = values - arrays["returns"]
        squares = errors * errors
        gradient = errors * average
        metrics = {}
        if limit is not None:
            moves = values - arrays["values"]
            clipped = arrays["values"] + np.minimum(np.maximum(moves, -limit), limit)
            clipped_squares = (clipped - arrays["returns"]) ** 2
            is_clipped = np.abs(moves) > limit
            gradient = np.where(is_clipped & (clipped_squares > squares), np.float32(0), gradient)
            squares = np.maximum(squares, clipped_squares)
            metrics["value_clip_fraction"] = is_clipped @ average
        metrics["value_loss"] = 0.5 * (squares @ average)
        grad_outputs = self.coefficients.value_coef * gradient[:, None]
        head.backward(features, grad_outputs)
        return grad_outputs * head.weight, metrics


def difference(model: ActorCritic, spaces: Spaces) -> str:
    """Return in what numpy differs from torch, or "". In a run's first minibatch no clip is
    active, so both compute a synthetic one, with random weights, on both sides of every clip."""
    if isinstance(make_actor_of(model, spaces), MakeTorchActor):
        return "the actions"
    learner = NumpyLearner(deepcopy(model).requires_grad_(True), spaces)
    random = np.random.default_rng(0)
    weights = learner.weights
    weights += 0.3 * torch.from_numpy(random.standard_normal(len(weights), np.float32))
    learner.set_coefficients(0.75)  # as after a quarter of the run
    minibatch = _make_minibatch(learner, random)
    here = _learn(learner, NumpyLearner, minibatch)
    there = _learn(learner, Learner, minibatch)
    if here.keys() != there.keys():
        return "the metrics"
    for what, numbers in there.items():
        largest = numbers.abs().max().clamp(min=0.01)
        if not (here[what] - numbers).abs().max() <= 1e-4 * largest:
            return what
    return ""


@torch.no_grad()
def _make_minibatch(learner: Learner, random: np.random.Generator) -> Batch:
    now = learner.coefficients
    value_clip = now.clip_value_coef or 1.0
    shape = (NUM_ROWS, *learner.layout.tables[NUMBERS].shape)
    batch = {NUMBERS: torch.from_numpy(random.standard_normal(shape, np.float32))}
    distribution, values = Learner.forward(learner, batch)
    noise = learner.model.policy_head.draw_noise(random, NUM_ROWS)
    actions = distribution.sample(torch.from_numpy(noise))
    spread = torch.from_numpy(random.uniform(-3, 3, (4, NUM_ROWS))).float()
    return batch | {
        "actions": actions,
        "log_probs": distribution.log_prob(actions) + 0.08 * spread[0] ** 3,  # ratios up to 8
        "values": values + value_clip * spread[1],
        "returns": values + value_clip * spread[2] ** 3,
        "advantages": spread[3] + 0.5,
    }


def _learn(learner: Learner, kind: type[Learner], minibatch: Batch) -> Metrics:
    """Return what a class computes in a gradient step."""
    advantages = kind.standardize(learner, minibatch["advantages"])
    metrics = kind.gradient(learner, minibatch | {"advantages": advantages})
    gradient = learner.gradients.clone()
    learner.gradients *= 100  # so that it is clipped
    metrics["grad_norm"] = kind.clip_gradient(learner)
    return {
        "standardized advantages": torch.as_tensor(advantages),
        "the gradient": gradient,
        "the clipped gradient": learner.gradients.clone(),
        **{f"the metric {name}": torch.tensor(float(x)) for name, x in metrics.items()},
    }
