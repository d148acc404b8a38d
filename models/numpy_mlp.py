"""The mlp with its gradient, written out in numpy: torch takes longer to dispatch what matrices this small need than
they do, and a worker that acts by it starts without torch. ppo.models.mlp says what it computes, and tests that it does."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ppo.models.noise import draw_gumbel, draw_normal

MASKED_LOGIT = -1e8  # as a logit: its probability is 0, and yet it is finite
HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
# In place, and its slope by its result, in place as well.
ACTIVATIONS: dict[
    str, tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]
] = {
    "tanh": (
        lambda x: np.tanh(x, out=x),
        lambda y: np.subtract(1, np.multiply(y, y, out=y), out=y),
    ),
    "relu": (lambda x: np.maximum(x, 0, out=x), lambda y: np.sign(y, out=y)),
}


class Layout(NamedTuple):
    """What a ppo.models.actor_critic.FeedForward has on vectors. shapes: of its parameters, by name and in order;
    activation: of its hidden layers; num_actions: D; num_choices: K, of each action, 0 if they are Gaussian."""

    shapes: Mapping[str, tuple[int, ...]]
    activation: str
    num_actions: int
    num_choices: int


class Linear:
    """A layer with weights (out, in) and a bias (out,), and arrays for the gradients of both."""

    def __init__(self, weight: np.ndarray, bias: np.ndarray, *gradients: np.ndarray) -> None:
        self.weight, self.bias, self.gradients = weight, bias, gradients

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        """inputs: (B, in). Returns (B, out)."""
        outputs = inputs @ self.weight.T
        outputs += self.bias
        return outputs

    def backward(self, inputs: np.ndarray, gradient: np.ndarray) -> None:
        """Write the gradients of weights and bias by that of the outputs, (B, out)."""
        np.matmul(gradient.T, inputs, out=self.gradients[0])
        np.matmul(
            np.ones(len(gradient), np.float32), gradient, out=self.gradients[1]
        )  # a sum, in half the time


class NumpyCategorical:
    """D independent choices among K, as ppo.models.distributions.Categorical. logits: (B, D * K), which lie here as
    (K, B * D): sums over long rows are fast."""

    def __init__(self, logits: np.ndarray, actions: np.ndarray, num_choices: int) -> None:
        self.shape = actions.shape
        self.log_probabilities = np.ascontiguousarray(logits.reshape(-1, num_choices).T)
        self.log_probabilities -= self.log_probabilities.max(0)
        self.probabilities = np.exp(self.log_probabilities)
        totals = self.probabilities.sum(0)
        self.probabilities /= totals
        self.log_probabilities -= np.log(totals)
        self.entropies = -(self.probabilities * self.log_probabilities).sum(0)
        self.chosen = (actions.ravel(), np.arange(actions.size))
        self.log_prob = self._sum(self.log_probabilities[self.chosen])
        self.entropy = self._sum(self.entropies)

    def backward(self, of_log_prob: np.ndarray, of_entropy: float) -> np.ndarray:
        """The gradient of the logits (B, D * K), by those of log_prob (B,) and of every entropy."""
        by_choice = of_log_prob if self.shape[1] == 1 else np.repeat(of_log_prob, self.shape[1])
        gradient = self.log_probabilities + self.entropies
        gradient *= -of_entropy
        gradient -= by_choice
        gradient *= self.probabilities
        gradient[self.chosen] += by_choice
        return gradient.T.reshape(self.shape[0], -1)

    def _sum(self, of_choices: np.ndarray) -> np.ndarray:
        return of_choices if self.shape[1] == 1 else of_choices.reshape(self.shape).sum(1)


class NumpyDiagonalGaussian:
    """D independent normals, as ppo.models.distributions.DiagonalGaussian. mean: (B, D); log_std: (D,), with an array for
    its gradient."""

    def __init__(self, mean: np.ndarray, actions: np.ndarray, log_std: Any, gradient: Any) -> None:
        self.inverse, self.gradient = np.exp(-log_std), gradient
        self.standardized = (actions - mean) * self.inverse
        constant = log_std.sum() + log_std.size * HALF_LOG_TWO_PI
        self.log_prob = (
            -0.5 * np.einsum("ij,ij->i", self.standardized, self.standardized) - constant
        )
        self.entropy = np.full(len(mean), constant + log_std.size / 2, np.float32)

    def backward(self, of_log_prob: np.ndarray, of_entropy: float) -> np.ndarray:
        """The gradient of the mean (B, D), as NumpyCategorical has it; that of log_std is written."""
        squares = self.standardized * self.standardized
        np.matmul(of_log_prob, squares - 1, out=self.gradient)
        self.gradient += of_entropy * len(of_log_prob)
        return of_log_prob[:, None] * self.standardized * self.inverse


class NumpyMLP:
    """By weights (P,), and with an array for their gradients (P,)."""

    def __init__(
        self, layout: Layout, weights: np.ndarray, gradients: np.ndarray | None = None
    ) -> None:
        self.layout, self.gradients = layout, gradients
        parameters = _views(layout.shapes, weights)
        slots = {} if gradients is None else _views(layout.shapes, gradients)

        def layer(name: str) -> Linear:
            both = (f"{name}.weight", f"{name}.bias")
            return Linear(
                *(parameters[part] for part in both), *(slots[part] for part in both if slots)
            )

        def trunk(name: str) -> list[Linear]:
            layers = {key.rsplit(".", 1)[0] for key in layout.shapes if key.startswith(name)}
            return [
                layer(part) for part in sorted(layers, key=lambda part: int(part.rsplit(".", 1)[1]))
            ]

        self.policy_trunk = trunk("policy_trunk")
        self.value_trunk = trunk("value_trunk") or self.policy_trunk
        self.policy_head = layer("policy_head.logits" if layout.num_choices else "policy_head.mean")
        self.value_head = layer("value_head")
        self.log_std: Any
        self.log_std, self.of_log_std = (
            table.get("policy_head.log_std") for table in (parameters, slots)
        )
        self.activate, self.slope = ACTIVATIONS[layout.activation]

    def features(self, trunk: list[Linear], observations: np.ndarray) -> list[np.ndarray]:
        """Observations (B, *observation) as vectors, and what each hidden layer makes of them, (B, F)."""
        outputs = [observations.reshape(len(observations), -1).astype(np.float32, copy=False)]
        for layer in trunk:
            x = layer(outputs[-1])
            self.activate(x)
            outputs.append(x)
        return outputs

    def distribution(
        self, columns: np.ndarray, actions: np.ndarray, masks: np.ndarray | None
    ) -> NumpyCategorical | NumpyDiagonalGaussian:
        """Of what the policy's head has given (B, C), within masks (B, C), with actions (B, D) taken."""
        if not self.layout.num_choices:
            return NumpyDiagonalGaussian(columns, actions, self.log_std, self.of_log_std)
        columns = columns if masks is None else np.where(masks, columns, MASKED_LOGIT)
        return NumpyCategorical(columns, actions, self.layout.num_choices)

    def values(self, features: np.ndarray) -> np.ndarray:
        """Values (B,) of the value's features (B, F)."""
        return self.value_head(features)[:, 0]

    def backward(
        self, trunk: list[Linear], outputs: list[np.ndarray], gradient: np.ndarray
    ) -> None:
        """Write the gradient of a trunk by that of its features (B, F). outputs: what features returned, which is used
        up."""
        for number in range(len(trunk) - 1, -1, -1):
            gradient *= self.slope(outputs[number + 1])
            trunk[number].backward(outputs[number], gradient)
            if number:
                gradient = gradient @ trunk[number].weight


class NumpyActor:
    """Acts as a ppo.models.actor.Actor does."""

    state_size = 0

    def __init__(self, layout: Layout, weights: np.ndarray) -> None:
        self.source, self.weights = weights, weights.copy()
        self.mlp, self.num_actions, self.num_choices = NumpyMLP(layout, self.weights), *layout[2:]

    def refresh(self) -> None:
        """Act by the weights as they are now."""
        self.weights[:] = self.source

    def draw_noise(self, generator: np.random.Generator, num_steps: int) -> np.ndarray:
        if self.num_choices:
            return draw_gumbel(generator, num_steps, self.num_actions * self.num_choices)
        return draw_normal(generator, num_steps, self.num_actions)

    def __call__(
        self,
        observations: np.ndarray,
        noise: np.ndarray | None,
        mask: np.ndarray | None = None,
        states: np.ndarray | None = None,
        features: np.ndarray | None = None,
    ) -> np.ndarray:
        """All as ppo.models.actor.Actor has it."""
        hidden = self.mlp.features(self.mlp.policy_trunk, observations)[-1]
        if features is not None and features.size:
            features[:] = hidden
        columns = self.mlp.policy_head(hidden)
        if not self.num_choices:
            return columns if noise is None else columns + np.exp(self.mlp.log_std) * noise
        if mask is not None and mask.size:
            columns = np.where(mask, columns, MASKED_LOGIT)
        if noise is not None:
            columns += noise
        return columns.reshape(len(columns), self.num_actions, self.num_choices).argmax(-1)


def _views(shapes: Mapping[str, tuple[int, ...]], flat: np.ndarray) -> dict[str, np.ndarray]:
    """Parts of a vector (P,), by name."""
    parts = np.split(flat, np.cumsum([math.prod(shape) for shape in shapes.values()])[:-1])
    return {
        name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }
