"""Split the rows of a batch at random, anew in each epoch."""

from typing import NamedTuple

import numpy as np
import torch
from numpy import ndarray


class Minibatch(NamedTuple):
    """This rank's row indices (b,) of one minibatch, and their weight.

    weight: their share of the minibatch's rows on all ranks; with weight 0 there is one row all the
    same, so that every rank computes a gradient.
    """

    rows: ndarray
    weight: float


def draw_minibatches(config, *, seed: int, sequence_length: int, env_ids: range) -> list[Minibatch]:
    """Split the T * N rows of a rollout at random, anew in each epoch; every row is used once.

    config: num_steps (T), num_envs (N), num_epochs, num_minibatches and batch_size are used. Makes
    num_minibatches parts of sizes as equal as possible, or, given a batch_size, parts of that many
    rows and a last one with the rest. Runs of sequence_length rows of one environment stay
    together and in order. env_ids: the environments whose rows are in this rank's batch: every
    rank draws the same permutation and takes its own rows of it.
    """
    num_envs = config.num_envs
    num_sequences = config.num_steps // sequence_length * num_envs
    own_sequences = np.arange(num_sequences).reshape(-1, num_envs)[:, env_ids.start : env_ids.stop]
    position = np.full(num_sequences, -1)  # of each sequence in this rank's batch
    position[own_sequences.ravel()] = np.arange(own_sequences.size)
    rows = np.arange(config.num_steps * len(env_ids)).reshape(sequence_length, -1)
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(config.num_epochs):
        order = torch.randperm(num_sequences, generator=generator).numpy()
        if config.batch_size:
            size = max(1, config.batch_size // sequence_length)
            parts = np.split(order, range(size, num_sequences, size))
        else:
            parts = np.array_split(order, config.num_minibatches)
        for part in parts:
            own = part
            if len(env_ids) < num_envs:
                own = position[part]
                own = own[own >= 0]
            weight = len(own) / len(part)
            if not len(own):
                own = np.zeros(1, np.int64)
            if sequence_length > 1:
                own = rows[:, own].ravel()
            found.append(Minibatch(own, weight))
    return found
