"""The mlp, its gradient and its actor in numpy.

For matrices this small, torch's dispatch takes longer than the arithmetic, and a worker that acts
in numpy need not import torch. It mirrors ppo.models.mlp, distributions and actor."""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray
from numpy.random import Generator

DrawNoise = Callable[[Generator, int], ndarray]  # of a policy head: (num_steps, *noise)
MASKED_LOGIT = -1e8  # a finite logit whose probability is 0
TINY = np.finfo(np.float32).tiny
HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
EMPTY = np.zeros(0, np.float32)  # where there are no masks, states or features
# By name: the function, and its derivative as a function of its outputs. Both write to out.
ACTIVATIONS: dict[str, tuple[Any, Any]] = {
    "tanh": (np.tanh, lambda x, out: np.subtract(1, np.multiply(x, x, out), out)),
    "relu": (
        lambda x, out: np.maximum(x, 0, out=out),
        lambda x, out: np.not_equal(x, 0, out, casting="unsafe"),
    ),
}


def draw_gumbel(generator: Generator, num_steps: int, size: int) -> ndarray:
    """Draw standard Gumbel noise (num_steps, size) for a rollout of one environment."""
    exponential = generator.standard_exponential((num_steps, size), np.float32)
    return -np.log(np.maximum(exponential, TINY))


def draw_normal(generator: Generator, num_steps: int, size: int, hold: int) -> ndarray:
    """Draw standard normal noise (num_steps, size), each held for hold steps, or for the whole
    rollout if hold is below 1."""
    if hold < 1:
        hold = num_steps
    draws = generator.standard_normal((math.ceil(num_steps / hold), size), np.float32)
    return np.repeat(draws, hold, 0)[:num_steps]


class Structure(NamedTuple):
    shapes: dict[str, tuple[int, ...]]  # of parameters, by name and in order
    activation: str
    num_choices: int  # K of each action, 0 for Gaussian actions
    draw_noise: DrawNoise


def structure_of(model: Any) -> Structure | None:
    """Return the structure of a FeedForward; None if this module does not support all its parts."""
    from torch.nn import Linear

    from ppo.models.actor_critic import FeedForward
    from ppo.models.distributions import CategoricalHead, GaussianHead
    from ppo.models.mlp import VectorTrunk

    if type(model) is not FeedForward:
        return None
    trunk: Any = model.policy_trunk
    value_trunk: Any = model.value_trunk
    head: Any = model.policy_head
    kinds = [type(part) for part in (trunk, value_trunk, model.value_head)]
    if kinds != [VectorTrunk, VectorTrunk, Linear] or trunk.activation != value_trunk.activation:
        return None
    if type(head) not in (CategoricalHead, GaussianHead) or not head.is_plain:
        return None
    if trunk.activation not in ACTIVATIONS:
        return None
    num_choices = head.shape[1] if isinstance(head, CategoricalHead) else 0
    shapes = {name: tuple(x.shape) for name, x in model.named_parameters()}
    return Structure(shapes, trunk.activation, num_choices, head.draw_noise)


class NumpyLinear(NamedTuple):
    weight: ndarray  # (out, in)
    grad_weight: ndarray
    bias: ndarray
    grad_bias: ndarray

    def __call__(self, inputs: ndarray) -> ndarray:
        outputs = inputs @ self.weight.T
        outputs += self.bias
        return outputs

    def backward(self, inputs: ndarray, grad_outputs: ndarray) -> None:
        """Write the gradients of weight and bias, given the gradient of the outputs (B, out)."""
        np.matmul(grad_outputs.T, inputs, self.grad_weight)
        ones = np.ones(len(grad_outputs), np.float32)
        np.matmul(ones, grad_outputs, self.grad_bias)  # twice as fast as a sum


class NumpyCategorical:
    """D choices among K each. logits: (B, D, K); actions: (B, D); log_probs: (K, B * D), since
    reductions over axis 0 are faster; entropies: (B * D,)."""

    def __init__(self, logits: ndarray) -> None:
        self.num_rows, self.num_actions, num_choices = logits.shape
        self.log_probs = np.array(logits.reshape(-1, num_choices).T, order="C")
        self.log_probs -= self.log_probs.max(0)
        self.probabilities = np.exp(self.log_probs)
        totals = self.probabilities.sum(0)
        self.probabilities /= totals
        self.log_probs -= np.log(totals)
        self.entropies = -(self.probabilities * self.log_probs).sum(0)

    def log_prob(self, actions: ndarray) -> ndarray:
        self.chosen = (actions.ravel(), np.arange(actions.size))
        return self._sum(self.log_probs[self.chosen])

    def entropy(self) -> ndarray:
        return self._sum(self.entropies)

    def backward(self, grad_log_prob: ndarray, grad_entropy: float) -> ndarray:
        """Return the gradient of the logits (B, D * K), given those of the last log_prob (B,) and
        of every entropy."""
        if self.num_actions > 1:
            grad_log_prob = np.repeat(grad_log_prob, self.num_actions)
        gradient = self.log_probs + self.entropies
        gradient *= -grad_entropy
        gradient -= grad_log_prob
        gradient *= self.probabilities
        gradient[self.chosen] += grad_log_prob
        return gradient.T.reshape(self.num_rows, -1)

    def _sum(self, table: ndarray) -> ndarray:
        return table.reshape(self.num_rows, -1).sum(1) if self.num_actions > 1 else table


@dataclass
class NumpyDiagonalGaussian:
    """D normals. mean, actions: (B, D); log_std, its gradient: (D,). log_prob is called first."""

    mean: ndarray
    log_std: ndarray
    grad_log_std: ndarray

    def log_prob(self, actions: ndarray) -> ndarray:
        self.log_normalizer = self.log_std.sum() + self.log_std.size * HALF_LOG_TWO_PI
        self.inverse_std = np.exp(-self.log_std)
        self.standardized = (actions - self.mean) * self.inverse_std
        squares = np.einsum("ij,ij->i", self.standardized, self.standardized)
        return -0.5 * squares - self.log_normalizer

    def entropy(self) -> ndarray:
        return np.full(len(self.mean), self.log_normalizer + self.log_std.size / 2, np.float32)

    def backward(self, grad_log_prob: ndarray, grad_entropy: float) -> ndarray:
        """Return the gradient of the mean (B, D), and write that of log_std; arguments as above."""
        squares = self.standardized * self.standardized
        np.matmul(grad_log_prob, squares - 1, self.grad_log_std)
        self.grad_log_std += grad_entropy * len(grad_log_prob)
        return grad_log_prob[:, None] * self.standardized * self.inverse_std


class NumpyMLP:
    """A model with this structure, on views of its weights (P,) and of their gradients (P,)."""

    def __init__(self, structure: Structure, weights: ndarray, gradients: ndarray) -> None:
        self.num_choices = structure.num_choices
        self.gradients = gradients
        self.activate, self.activation_grad = ACTIVATIONS[structure.activation]
        arrays: dict[str, list[ndarray]] = defaultdict(list)  # each with its gradient, by module
        first = 0
        for name, shape in structure.shapes.items():
            part = slice(first, first := first + math.prod(shape))
            views = [vector[part].reshape(shape) for vector in (weights, gradients)]
            arrays[name.rpartition(".")[0]] += views

        def layers_of(part: str) -> list[NumpyLinear]:
            return [NumpyLinear(*x) for name, x in arrays.items() if name.startswith(part)]

        self.policy_layers = layers_of("policy_trunk.")
        self.value_layers = layers_of("value_trunk.") or self.policy_layers
        self.is_shared = self.value_layers is self.policy_layers
        self.policy_head = layers_of("policy_head.")[0]
        self.value_head = layers_of("value_head")[0]
        self.log_std, self.grad_log_std = arrays["policy_head"] or [EMPTY, EMPTY]

    def forward(self, layers: list[NumpyLinear], observations: ndarray) -> list[ndarray]:
        """Return flattened observations, then the outputs (B, F) of each hidden layer."""
        vectors = observations.reshape(len(observations), -1)
        outputs = [vectors.astype(np.float32, copy=False)]
        for layer in layers:
            x = layer(outputs[-1])
            outputs.append(self.activate(x, x))
        return outputs

    def backward(
        self, layers: list[NumpyLinear], outputs: list[ndarray], gradient: ndarray
    ) -> None:
        """Write the gradients of hidden layers, given what forward returned and the gradient of the
        features (B, F); both are overwritten."""
        for layer in reversed(layers):
            x = outputs.pop()
            gradient *= self.activation_grad(x, x)
            layer.backward(outputs[-1], gradient)
            if len(outputs) > 1:  # the observations have no use for a gradient
                gradient = gradient @ layer.weight

    @np.errstate(all="ignore")  # as torch
    def values(self, observations: ndarray, features: ndarray | None) -> ndarray:
        """Return the values (B,) of observations. features: (B, F), if the trunk is shared."""
        if features is None:
            features = self.forward(self.value_layers, observations)[-1]
        return self.value_head(features)[:, 0]

    def distribution(self, features: ndarray, mask: ndarray) -> Any:
        """Return the distribution of actions, from features (B, F); mask: (B, M), or empty."""
        outputs = self.policy_head(features)
        if not self.num_choices:
            return NumpyDiagonalGaussian(outputs, self.log_std, self.grad_log_std)
        if mask.size:
            outputs = np.where(mask, outputs, MASKED_LOGIT)
        return NumpyCategorical(outputs.reshape(len(outputs), -1, self.num_choices))


class NumpyActor:
    """Act with a private copy of weights (P,), without torch; see ppo.models.actor.Actor."""

    state_size = 0

    def __init__(self, structure: Structure, weights: ndarray) -> None:
        self.draw_noise = structure.draw_noise
        self.source = weights
        self.weights = np.empty_like(weights)
        self.mlp = NumpyMLP(structure, self.weights, self.weights)
        self.layers = [*self.mlp.policy_layers]
        self.refresh()

    def refresh(self) -> None:
        """Copy the current weights, those of hidden layers in column-major order: OpenBLAS then
        multiplies a few rows by 256 x 256 weights in a third of the time."""
        self.weights[:] = self.source
        by_columns = [layer._replace(weight=layer.weight.copy("F")) for layer in self.layers]
        self.mlp.policy_layers[:] = by_columns

    def __call__(
        self,
        observations: ndarray,
        noise: ndarray | None,
        *,
        mask: ndarray = EMPTY,
        states: ndarray = EMPTY,
        features: ndarray = EMPTY,
    ) -> ndarray:
        """Return actions (n, D); the arguments are those of Actor."""
        mlp = self.mlp
        policy_features = mlp.forward(mlp.policy_layers, observations)[-1]
        if features.size:
            features[:] = policy_features
        outputs = mlp.policy_head(policy_features)
        if not mlp.num_choices:
            return outputs if noise is None else outputs + np.exp(mlp.log_std) * noise
        if mask.size:
            outputs = np.where(mask, outputs, MASKED_LOGIT)
        if noise is not None:
            outputs += noise
        return outputs.reshape(len(outputs), -1, mlp.num_choices).argmax(-1)
