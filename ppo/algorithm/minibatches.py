"""Split the rows of a batch at random, anew in each epoch."""

from typing import NamedTuple

import numpy as np
import torch
from numpy import ndarray


class Minibatch(NamedTuple):
    """This rank's row indices (b,) of one minibatch, and their weight.

    weight: their share of the minibatch's rows on all ranks; with weight 0 there is one row all the
    same, so that every rank computes a gradient. sequences: the indices (c,) of all rows that a
    recurrent network must read, if rows are only some of them.
    """

    rows: ndarray
    weight: float
    sequences: ndarray | None = None


def draw_minibatches(
    config, *, seed: int, sequence_length: int, env_ids: range, present: ndarray | None = None
) -> list[Minibatch]:
    """Split the T * N rows of a rollout at random, anew in each epoch; every row is used once.

    config: num_steps (T), num_envs (N), num_epochs, num_minibatches and batch_size are used. Makes
    num_minibatches parts of sizes as equal as possible, or, given a batch_size, parts of that many
    rows and a last one with the rest. Runs of sequence_length rows of one environment stay
    together and in order. env_ids: the environments whose rows are in this rank's batch: every
    rank draws the same permutation and takes its own rows of it. present: (T, N) bool of all ranks,
    the rows to use; None for all of them. A minibatch without any is left out.
    """
    num_envs = config.num_envs
    num_sequences = config.num_steps // sequence_length * num_envs
    sizes = np.full(num_sequences, sequence_length)  # rows to use in each sequence
    if present is not None:
        sizes = present.reshape(sequence_length, -1).sum(0)
        is_used = present[:, env_ids.start : env_ids.stop].ravel()  # of each row of this rank
    own_sequences = np.arange(num_sequences).reshape(-1, num_envs)[:, env_ids.start : env_ids.stop]
    position = np.full(num_sequences, -1)  # of each sequence in this rank's batch
    position[own_sequences.ravel()] = np.arange(own_sequences.size)
    rows = np.arange(config.num_steps * len(env_ids)).reshape(sequence_length, -1)
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(config.num_epochs):
        order = torch.randperm(num_sequences, generator=generator).numpy()
        order = order[sizes[order] > 0] if present is not None else order
        if config.batch_size:
            size = max(1, config.batch_size // sequence_length)
            parts = np.split(order, range(size, num_sequences, size))
        else:
            parts = np.array_split(order, config.num_minibatches)
        for part in parts:
            if not len(part):
                continue
            is_own = position[part] >= 0
            own = position[part[is_own]]
            weight = sizes[part[is_own]].sum() / sizes[part].sum()
            sequences = None
            if not len(own):
                own = np.zeros(1, np.int64)
            if sequence_length > 1:
                own = rows[:, own].ravel()
                if present is not None:
                    sequences = own
                    own = own[is_used[own]]
            found.append(Minibatch(own, weight, sequences))
    return found
