"""Compare numpy's gradient with torch's, so that an edit of the torch code counts.

On the first minibatch of a run all ratios are 1, and no clip is active. So a made-up minibatch goes
both ways, by made-up weights, with old log-probabilities and values on both sides of every clip."""

import numpy as np
import torch
from torch import Tensor

from ppo.envs.observations import NUMBERS
from ppo.learner import Learner
from ppo.numpy_learner import NumpyLearner
from ppo.rollout import Batch, Metrics

NUM_ROWS = 64
NOISE = 0.3  # standard deviation of what is added to weights
TOLERANCE = 1e-4  # of the largest number
PASSED = 0.25  # share of the run whose scheduled coefficients are compared


def difference(learner: Learner) -> str:
    """Return in what numpy's learning differs from torch's for the same weights: "standardised
    advantages", "gradient", "clipped gradient" or "metrics"; "" where it does not, or where torch
    learns anyway."""
    if not isinstance(learner, NumpyLearner):
        return ""
    generator = np.random.default_rng(0)
    kept = learner.weights.clone(), learner.learning_rate
    noise = generator.standard_normal(len(learner.weights), dtype=np.float32)
    try:
        learner.weights += torch.from_numpy(NOISE * noise)
        learner.set_coefficients(1 - PASSED)
        return _compare(learner, make_minibatch(learner, generator))
    finally:
        learner.weights.copy_(kept[0])
        learner.gradients.zero_()
        learner.set_coefficients(1.0)
        learner.learning_rate = kept[1]


def make_minibatch(learner: Learner, generator: np.random.Generator) -> Batch:
    """Make up a minibatch for a learner's network."""
    clip = learner.coefficients.clip_coef
    value_clip = learner.coefficients.clip_value_coef or 1.0
    box = learner.layout.tables[NUMBERS]
    head = learner.model.policy_head
    observations = generator.standard_normal((NUM_ROWS, *box.shape), dtype=np.float32)
    batch = {NUMBERS: torch.from_numpy(observations)}
    with torch.no_grad():
        distribution, values = Learner.forward(learner, batch)
        noise = head.draw_noise(generator, NUM_ROWS)
        batch["actions"] = distribution.sample(torch.from_numpy(noise))
        log_probs = distribution.log_prob(batch["actions"])

    def spread(width: float) -> Tensor:
        return torch.from_numpy(generator.uniform(-3, 3, NUM_ROWS).astype(np.float32) * width)

    return batch | {
        "log_probs": log_probs + spread(clip),
        "values": values + spread(value_clip),
        "returns": values + spread(3 * value_clip),
        "advantages": spread(1.0) + 0.5,
    }


def _compare(learner: NumpyLearner, minibatch: Batch) -> str:
    ways = [_by(learner, NumpyLearner, minibatch), _by(learner, Learner, minibatch)]
    for what, here, there in zip(
        ("standardised advantages", "gradient", "clipped gradient"), *ways, strict=False
    ):
        if not _is_close(here, there):
            return what
    here_metrics, there_metrics = ways[0][3], ways[1][3]
    if here_metrics.keys() != there_metrics.keys():
        return "metrics"
    here, there = (
        torch.tensor([float(metrics[name]) for name in here_metrics])
        for metrics in (here_metrics, there_metrics)
    )
    return "" if _is_close(here, there) else "metrics"


def _by(
    learner: NumpyLearner, kind: type[Learner], minibatch: Batch
) -> tuple[Tensor, Tensor, Tensor, Metrics]:
    """Return standardised advantages, gradient, clipped gradient and metrics by a class."""
    advantages = kind.standardize(learner, minibatch["advantages"])
    metrics = kind.gradient(learner, {**minibatch, "advantages": advantages})
    gradient = learner.gradients.clone()
    learner.gradients *= 100  # so that it is clipped
    metrics["grad_norm"] = kind.clip_gradient(learner)
    return advantages, gradient, learner.gradients.clone(), metrics


def _is_close(here: Tensor, there: Tensor) -> bool:
    scale = max(1e-8, float(there.abs().max()))
    return bool(here.shape == there.shape and (here - there).abs().max() <= TOLERANCE * scale)
