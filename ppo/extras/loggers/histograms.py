"""Histograms of an iteration, for the loggers that show them."""

from typing import Any

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from ppo.algorithm.learner import Learner
from ppo.algorithm.rollout import Batch, Rollout
from ppo.callbacks.base import Callback, Run
from ppo.components import Components
from ppo.extras.loggers.flags import HistogramFlags
from ppo.models.observation_parts import images_of, split, vectors_of
from ppo.run.loggers.logger import Histograms

MAX_HISTOGRAM_VALUES = 10_000


def make_callbacks(parts: Components) -> list[Callback]:
    """Return the callback that makes histograms for the loggers of --logger."""
    return [MakeHistograms()]


class MakeHistograms(Callback):
    """Make histograms every --histogram_every iterations, for loggers other than the console."""

    def on_iteration(self, run: Run) -> None:
        is_shown = run.config.loggers - {"console"}
        if is_shown and run.is_due(HistogramFlags.of(run.config).histogram_every):
            space = run.parts.spaces.observations
            run.histograms = make_histograms(run.parts.learner, run.rollout, run.batch, space)


@torch.no_grad()
def make_histograms(
    learner: Learner, rollout: Rollout, batch: Batch, observation_space: Any
) -> Histograms:
    """Return the histograms of an iteration, after the update by the batch.

    observations: the network's input, without images unless there is nothing else; ratios: of the
    probabilities after the update and before; image: the newest one of environment 0."""
    shown = ("observations", "actions", "advantages", "returns", "values")
    tensors = {name: torch.as_tensor(batch[name]) for name in shown}
    parts = split(observation_space, tensors["observations"])
    if vectors := vectors_of(observation_space):
        tensors["observations"] = torch.cat([parts[name].flatten(1) for name in vectors], 1)
    rows = dict(batch)
    rows.pop("starts", None)
    device = learner.weights.device
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):  # a model's random numbers must not change learning
        log_probs, _ = learner.evaluate_actions(rows)
    before = torch.as_tensor(batch["log_probs"]).cpu()
    tensors["ratios"] = (torch.from_numpy(log_probs) - before).exp()
    head: Any = learner.model.policy_head
    if hasattr(head, "log_std"):
        tensors["log_std"] = head.log_std
    values = {name: _some_values(tensor) for name, tensor in tensors.items()}
    for name in ("episode_return", "episode_length"):
        values[f"{name}s"] = np.array([getattr(x, name) for x in rollout.info.episodes], np.float32)
    image = None
    newest = split(observation_space, torch.from_numpy(rollout.observations[-1, :1]))
    for name in images_of(observation_space):
        num_channels = 3 if observation_space.shown[name].kind == "color" else 1
        image = newest[name][0, ..., -num_channels:].numpy().copy()
        break
    return Histograms({name: x for name, x in values.items() if len(x)}, image)


def _some_values(tensor: Tensor) -> ndarray:
    """Return up to MAX_HISTOGRAM_VALUES finite numbers (n,) float64, evenly spaced in a tensor."""
    flat = tensor.flatten()
    count = min(len(flat), MAX_HISTOGRAM_VALUES)
    chosen = torch.linspace(0, len(flat) - 1, count, dtype=torch.float64).long()
    values = flat[chosen.to(flat.device)].double().cpu().numpy()
    return values[np.isfinite(values)]
