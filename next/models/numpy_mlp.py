"""The mlp, its gradient and its actor in numpy.

For matrices this small, torch's dispatch takes longer than the arithmetic, and a worker that acts
in numpy need not import torch. The classes mirror those of ppo.models.mlp, distributions, actor."""

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from ppo.models.noise import EMPTY, HALF_LOG_TWO_PI, MASKED_LOGIT, DrawNoise

# By name: the function, and its derivative as a function of its outputs. Both write to out.
ACTIVATIONS: dict[str, tuple[Any, Any]] = {
    "tanh": (
        np.tanh,
        lambda outputs, out: np.subtract(1, np.multiply(outputs, outputs, out=out), out=out),
    ),
    "relu": (
        lambda inputs, out: np.maximum(inputs, 0, out=out),
        lambda outputs, out: np.not_equal(outputs, 0, out=out, casting="unsafe"),
    ),
}


class Structure(NamedTuple):
    """The structure of a ppo.models.actor_critic.FeedForward on numbers. shapes: of parameters, by
    name and in order; num_choices: K of each action, 0 for Gaussian actions."""

    shapes: dict[str, tuple[int, ...]]
    activation: str
    num_choices: int
    draw_noise: DrawNoise


def structure_of(model: Any) -> Structure | None:
    """Return the structure of a torch model; None if this module does not support all its parts."""
    from torch.nn import Linear

    from ppo.models.actor_critic import FeedForward
    from ppo.models.distributions import CategoricalHead, GaussianHead
    from ppo.models.mlp import VectorTrunk

    if type(model) is not FeedForward:
        return None
    trunk: Any = model.policy_trunk
    head: Any = model.policy_head
    kinds = [type(part) for part in (trunk, model.value_trunk, model.value_head)]
    if kinds != [VectorTrunk, VectorTrunk, Linear]:
        return None
    if type(head) not in (CategoricalHead, GaussianHead) or not head.is_plain:
        return None
    if trunk.activation not in ACTIVATIONS or trunk.activation != model.value_trunk.activation:
        return None
    num_choices = head.shape[1] if isinstance(head, CategoricalHead) else 0
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    return Structure(shapes, trunk.activation, num_choices, head.draw_noise)


class NumpyLinear(NamedTuple):
    """A layer with weights (out, in) and a bias (out,), and arrays for the gradients of both."""

    weight: ndarray
    grad_weight: ndarray
    bias: ndarray
    grad_bias: ndarray

    def __call__(self, inputs: ndarray) -> ndarray:
        """Return the outputs (B, out) of inputs (B, in)."""
        outputs = inputs @ self.weight.T
        outputs += self.bias
        return outputs

    def backward(self, inputs: ndarray, grad_outputs: ndarray) -> None:
        """Write the gradients of weight and bias, given the gradient of the outputs (B, out)."""
        np.matmul(grad_outputs.T, inputs, out=self.grad_weight)
        ones = np.ones(len(grad_outputs), np.float32)
        np.matmul(ones, grad_outputs, out=self.grad_bias)  # twice as fast as a sum


class NumpyTrunk:
    """Hidden layers on flattened numbers, as in ppo.models.mlp.VectorTrunk."""

    def __init__(self, layers: list[NumpyLinear], activation: str) -> None:
        self.layers = layers
        self.activate, self.activation_grad = ACTIVATIONS[activation]

    def __call__(self, observations: ndarray) -> list[ndarray]:
        """Return the flattened observations, then the outputs (B, F) of each layer."""
        vectors = observations.reshape(len(observations), -1)
        outputs = [vectors.astype(np.float32, copy=False)]
        for layer in self.layers:
            x = layer(outputs[-1])
            outputs.append(self.activate(x, out=x))
        return outputs

    def backward(self, outputs: list[ndarray], gradient: ndarray) -> None:
        """Write the gradients of all layers, given what the call returned and the gradient of the
        features (B, F); both are overwritten."""
        for layer in reversed(self.layers):
            x = outputs.pop()
            gradient *= self.activation_grad(x, out=x)
            layer.backward(outputs[-1], gradient)
            if len(outputs) > 1:  # the observations have no use for a gradient
                gradient = gradient @ layer.weight


class NumpyCategorical:
    """D independent choices among K each. logits: (B, D, K); actions: (B, D).

    log_probs, probabilities: (K, B * D), transposed since reductions over axis 0 are faster;
    entropies: (B * D,)."""

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
        """Return the gradient of the logits (B, D * K), given those (B,) of what log_prob last
        returned and of every entropy."""
        if self.num_actions > 1:
            grad_log_prob = np.repeat(grad_log_prob, self.num_actions)
        gradient = self.log_probs + self.entropies
        gradient *= -grad_entropy
        gradient -= grad_log_prob
        gradient *= self.probabilities
        gradient[self.chosen] += grad_log_prob
        return gradient.T.reshape(self.num_rows, -1)

    def _sum(self, table: ndarray) -> ndarray:
        """Sum a table (B * D) over the D choices of each row."""
        return table.reshape(self.num_rows, -1).sum(1) if self.num_actions > 1 else table


@dataclass
class NumpyDiagonalGaussian:
    """D independent normals. mean, actions: (B, D); log_std and its gradient: (D,)."""

    mean: ndarray
    log_std: ndarray
    grad_log_std: ndarray

    def __post_init__(self) -> None:
        self.log_normalizer = self.log_std.sum() + self.log_std.size * HALF_LOG_TWO_PI

    def log_prob(self, actions: ndarray) -> ndarray:
        self.inverse_std = np.exp(-self.log_std)
        self.standardized = (actions - self.mean) * self.inverse_std
        squares = np.einsum("ij,ij->i", self.standardized, self.standardized)
        return -0.5 * squares - self.log_normalizer

    def entropy(self) -> ndarray:
        return np.full(len(self.mean), self.log_normalizer + self.log_std.size / 2, np.float32)

    def backward(self, grad_log_prob: ndarray, grad_entropy: float) -> ndarray:
        """Return the gradient of the mean (B, D), and write that of log_std; arguments as above."""
        squares = self.standardized * self.standardized
        np.matmul(grad_log_prob, squares - 1, out=self.grad_log_std)
        self.grad_log_std += grad_entropy * len(grad_log_prob)
        return grad_log_prob[:, None] * self.standardized * self.inverse_std


class NumpyMLP:
    """A model with this structure, on views of its weights (P,) and of their gradients (P,)."""

    def __init__(self, structure: Structure, weights: ndarray, gradients: ndarray) -> None:
        self.num_choices = structure.num_choices
        self.gradients = gradients
        arrays: dict[str, list[ndarray]] = defaultdict(list)  # each with its gradient, by module
        first = 0
        for name, shape in structure.shapes.items():
            part = slice(first, first := first + math.prod(shape))
            views = [vector[part].reshape(shape) for vector in (weights, gradients)]
            arrays[name.rpartition(".")[0]] += views
        trunks = []
        for trunk in ("policy_trunk", "value_trunk"):
            layers = [NumpyLinear(*x) for name, x in arrays.items() if name.startswith(trunk)]
            trunks.append(NumpyTrunk(layers, structure.activation))
        self.policy_trunk, self.value_trunk = trunks
        self.is_shared = not self.value_trunk.layers
        if self.is_shared:
            self.value_trunk = self.policy_trunk
        outputs = "logits" if self.num_choices else "mean"
        self.policy_head = NumpyLinear(*arrays[f"policy_head.{outputs}"])
        self.value_head = NumpyLinear(*arrays["value_head"])
        self.log_std, self.grad_log_std = arrays["policy_head"] or [EMPTY, EMPTY]

    def distribution(self, features: ndarray, mask: ndarray) -> Any:
        """Return the distribution of actions, from features (B, F); mask: (B, M), or empty."""
        outputs = self.policy_head(features)
        if not self.num_choices:
            return NumpyDiagonalGaussian(outputs, self.log_std, self.grad_log_std)
        if mask.size:
            outputs = np.where(mask, outputs, MASKED_LOGIT)
        return NumpyCategorical(outputs.reshape(len(outputs), -1, self.num_choices))

    def values(self, features: ndarray) -> ndarray:
        """Return values (B,), from features (B, F)."""
        return self.value_head(features)[:, 0]


class NumpyActor:
    """Act with a private copy of weights (P,), without torch; see ppo.models.actor.Actor."""

    state_size = 0

    def __init__(self, structure: Structure, weights: ndarray) -> None:
        self.draw_noise = structure.draw_noise
        self.source = weights
        self.weights = np.empty_like(weights)
        self.mlp = NumpyMLP(structure, self.weights, self.weights)
        self.layers = self.mlp.policy_trunk.layers
        self.refresh()

    def refresh(self) -> None:
        """Copy the current weights, those of hidden layers in column-major order: OpenBLAS then
        multiplies a few rows by 256 x 256 weights in a third of the time."""
        self.weights[:] = self.source
        by_columns = [layer._replace(weight=layer.weight.copy("F")) for layer in self.layers]
        self.mlp.policy_trunk.layers = by_columns

    def __call__(
        self,
        observations: ndarray,
        noise: ndarray | None,
        *,
        mask: ndarray = EMPTY,
        states: ndarray = EMPTY,
        features: ndarray = EMPTY,
    ) -> ndarray:
        """Return actions (n, D) for observations; the arguments are those of Actor."""
        mlp = self.mlp
        policy_features = mlp.policy_trunk(observations)[-1]
        if features.size:
            features[:] = policy_features
        # Sampled without a distribution object, which would add half a microsecond to ten.
        outputs = mlp.policy_head(policy_features)
        if not mlp.num_choices:
            return outputs if noise is None else outputs + np.exp(mlp.log_std) * noise
        if mask.size:
            outputs = np.where(mask, outputs, MASKED_LOGIT)
        if noise is not None:
            outputs += noise
        return outputs.reshape(len(outputs), -1, mlp.num_choices).argmax(-1)

    def values(self, observations: ndarray, states: ndarray = EMPTY) -> ndarray:
        """Return the values (n,) of observations."""
        mlp = self.mlp
        return mlp.values(mlp.value_trunk(observations)[-1])
