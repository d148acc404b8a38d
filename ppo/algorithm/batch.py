"""From a collected rollout to the batch that is learned from, and its minibatches."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from ppo.algorithm import losses
from ppo.algorithm.rollout import Batch, MinibatchRows, Rollout, minibatches
from ppo.envs.seeding import Stream, integer_seed

RECORDED = ("observations", "actions", "states", "action_masks", "features")  # read from a rollout


@torch.no_grad()
def make_batch(
    learner, rollout: Rollout, normalize: Callable[[ndarray], ndarray], rewards: ndarray
) -> Batch:
    """Make a batch (T * N, ...) of a rollout: with log-probabilities, values, advantages, returns.

    learner: a ppo.algorithm.learner.Learner, whose current weights evaluate the rollout. normalize:
    applied to observations. rewards (T, N): the rollout's, normalised.
    """
    device = learner.weights.device
    observations = normalize(rollout.observations)
    tables = {**vars(rollout), "observations": observations}
    batch = {
        name: _flatten(tables[name][: len(rewards)], device)
        for name in RECORDED
        if tables[name].size
    }
    batch["log_probs"], batch["values"] = log_probs_and_values(learner, batch)
    batch.pop("features", None)  # gradient steps change the weights that made them
    if "states" in batch:
        dones = rollout.dones
        starts = np.concatenate([np.zeros_like(dones[:1]), dones[:-1]])
        batch["starts"] = _flatten(starts, device)
    values = batch["values"].cpu().numpy().reshape(rewards.shape)
    bootstrap = _predict_values(learner, observations[-1], rollout.states[-1])
    next_values = np.concatenate([values[1:], bootstrap[None]])
    if truncated := rollout.info.last_observations:
        steps, environments, last, states = zip(*truncated, strict=True)
        last_values = _predict_values(learner, normalize(np.stack(last)), np.stack(states))
        next_values[steps, environments] = last_values
    advantages = learner.advantages(rollout, rewards, values, next_values)
    batch["advantages"] = _flatten(advantages, device)
    batch["returns"] = batch["advantages"] + batch["values"]
    return batch


def log_probs_and_values(learner, batch: Batch) -> tuple[Tensor, Tensor]:
    """Evaluate a batch's actions and observations: log-probabilities and values (B,).

    The batch is processed in chunks of the size of a minibatch, so that memory suffices.
    """
    config = learner.config
    num_rows = len(batch["actions"])
    size = config.batch_size or -(-num_rows // config.num_minibatches)
    parts = [
        learner.log_probs_and_values({name: x[first : first + size] for name, x in batch.items()})
        for first in range(0, num_rows, size)
    ]
    log_probs, values = zip(*parts, strict=True)
    return torch.cat(log_probs), torch.cat(values)


def split_into_minibatches(
    learner, batch: Batch, iteration: int
) -> tuple[Batch, list[MinibatchRows], list[Any]]:
    """Draw the minibatches of all epochs, with the moments of their advantages.

    Returns the batch (with standardised advantages if normalize_advantages is "rollout"), the
    minibatches, and the (deviation, mean) of each. Several ranks exchange these moments once for
    all minibatches; with one rank they are None.
    """
    config = learner.config
    advantages = batch["advantages"]
    if config.normalize_advantages == "rollout":
        everything = MinibatchRows(torch.arange(len(advantages)), 1.0)
        (moments,) = learner.ranks.minibatch_moments(advantages, [everything])
        batch = {**batch, "advantages": losses.standardize(advantages, moments)}
    parts = minibatches(
        config,
        sequence_length=config.num_steps if "states" in batch else 1,
        env_ids=learner.ranks.env_ids(config.num_envs),
        seed=integer_seed(config.seed, Stream.SHUFFLE, iteration),
    )
    all_moments: list[Any] = [None] * len(parts)
    if config.normalize_advantages == "minibatch":
        all_moments = learner.ranks.minibatch_moments(advantages, parts)
    return batch, parts, all_moments


def _predict_values(learner, observations: ndarray, states: ndarray):
    """Predict the values (B,) of observations (B, *observation), met with states (B, S)."""
    device = learner.weights.device
    inputs = [_to_tensor(table, device) for table in (observations, states) if table.size]
    return learner.predict_values(*inputs).cpu().numpy()


def _flatten(table: ndarray, device: torch.device) -> Tensor:
    """Move a table (T, N, ...) to the device as (T * N, ...)."""
    return _to_tensor(table, device).flatten(0, 1)


def _to_tensor(array: ndarray, device: torch.device) -> Tensor:
    if array.dtype == np.float64:
        array = array.astype(np.float32)  # models compute in float32 at most
    return torch.from_numpy(array).to(device)
