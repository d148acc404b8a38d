"""Compare numpy's gradient with torch's, so that an edit of the torch code counts.

As no clip is active on the first minibatch of a run, a made-up one goes both ways, by made-up
weights, with old log-probabilities and values on both sides of every clip."""

import numpy as np
import torch

from ppo.envs.observations import NUMBERS
from ppo.learner import Learner
from ppo.numpy_learner import NumpyLearner
from ppo.rollout import Batch, Metrics

NUM_ROWS = 64


def difference(learner: Learner) -> str:
    """Return in what numpy's learning differs from torch's for the same weights: a key of _learn's;
    "" where it does not, or where torch learns anyway."""
    if not isinstance(learner, NumpyLearner):
        return ""
    random = np.random.default_rng(0)
    weights = learner.weights.clone()
    learning_rate = learner.learning_rate
    learner.weights += 0.3 * torch.from_numpy(random.standard_normal(len(weights), np.float32))
    learner.set_coefficients(0.75)  # as after a quarter of the run
    minibatch = _make_minibatch(learner, random)
    here, names = _learn(learner, NumpyLearner, minibatch)
    there, torch_names = _learn(learner, Learner, minibatch)
    learner.weights.copy_(weights)
    learner.gradients.zero_()
    learner.set_coefficients(1.0)
    learner.learning_rate = learning_rate
    if names != torch_names:
        return "metrics"
    for what, numbers in there.items():
        largest = numbers.abs().max().clamp(min=1e-8)
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
        "log_probs": distribution.log_prob(actions) + now.clip_coef * spread[0],
        "values": values + value_clip * spread[1],
        "returns": values + 3 * value_clip * spread[2],
        "advantages": spread[3] + 0.5,
    }


def _learn(learner: Learner, kind: type[Learner], minibatch: Batch) -> tuple[Metrics, list[str]]:
    """Return what a class computes in a gradient step, and the names of its metrics."""
    advantages = kind.standardize(learner, minibatch["advantages"])
    metrics = kind.gradient(learner, minibatch | {"advantages": advantages})
    gradient = learner.gradients.clone()
    learner.gradients *= 100  # so that it is clipped
    metrics["grad_norm"] = kind.clip_gradient(learner)
    names = sorted(metrics)
    return {
        "standardised advantages": torch.as_tensor(advantages),
        "gradient": gradient,
        "clipped gradient": learner.gradients.clone(),
        "metrics": torch.tensor([float(metrics[name]) for name in names]),
    }, names
