"""The rollout (T steps of N environments, time-major) and the minibatches made of it."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

Batch = dict[str, Tensor]  # by name, (T * N, ...): a row for each transition
Metrics = dict[str, Any]


class Rollout(SimpleNamespace):
    """Hold one rollout: the tables of ppo.algorithm.buffers, in memory shared with workers.

    Row t + 1 of observations is what action t led to, or the first observation of the next episode.
    Row T is row 0 of the next rollout; the same holds for states and action_masks. info: what the
    workers reported beside the tensors (ppo.envs.worker.RolloutInfo), once it is collected.
    """

    @property
    def dones(self):
        """Steps (T, N) that ended an episode, by termination or truncation."""
        return self.terminations | self.truncations


class MinibatchRows(NamedTuple):
    """Name the rows of a batch that form this rank's part of a minibatch.

    weight: their share of the minibatch's rows on all ranks; with weight 0 there is one row all the
    same, so that every rank computes a gradient.
    """

    rows: Tensor
    weight: float


def minibatches(config, *, seed: int, sequence_length: int, env_ids: range) -> list[MinibatchRows]:
    """Split the T * N rows of a rollout at random, anew in each epoch; every row is used once.

    config: num_steps (T), num_envs (N), num_epochs, num_minibatches and batch_size are used. Makes
    num_minibatches parts of sizes as equal as possible, or, given a batch_size, parts of that many
    rows and a last one with the rest. Runs of sequence_length rows of one environment stay
    together and in order. env_ids: the environments whose rows are in this rank's batch: every
    rank draws the same permutation and takes its own rows of it.
    """
    num_envs = config.num_envs
    num_sequences = config.num_steps // sequence_length * num_envs
    own_sequences = torch.arange(num_sequences).view(-1, num_envs)[:, env_ids.start : env_ids.stop]
    place = torch.full((num_sequences,), -1)  # of each sequence in this rank's batch
    place[own_sequences.flatten()] = torch.arange(own_sequences.numel())
    rows = torch.arange(config.num_steps * len(env_ids)).view(sequence_length, -1)
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(config.num_epochs):
        order = torch.randperm(num_sequences, generator=generator)
        if config.batch_size:
            parts = torch.split(order, max(1, config.batch_size // sequence_length))
        else:
            parts = order.tensor_split(config.num_minibatches)
        for part in parts:
            own = part
            if len(env_ids) < num_envs:
                own = place[part]
                own = own[own >= 0]
            weight = len(own) / len(part)
            if not len(own):
                own = torch.zeros(1, dtype=torch.long)
            if sequence_length > 1:
                own = rows[:, own].flatten()
            found.append(MinibatchRows(own, weight))
    return found
