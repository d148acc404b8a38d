"""Split the rows of a batch at random, differently in each epoch."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy import ndarray

from ppo.config import Config


def draw_minibatches(
    config: Config,
    num_rows: int,
    *,
    seed: int,
    sequence_length: int = 1,
    present: ndarray | None = None,
) -> Iterator[ndarray]:
    """Yield the row indices (b,) of the minibatches of all epochs; num_rows = T * N.

    Every row is used once in each epoch. Minibatches are --num_minibatches of sizes as equal as
    possible, or, given a --batch_size, of that many rows (of its share, if the batch is a part of
    the rollout) and a last one with the rest. A lone row, which has no variance for a network's
    batch normalisation, joins the minibatch before. Runs of sequence_length rows of one environment
    stay together and in order. present: (T * N,) bool, the rows to use, if not all."""
    num_sequences = num_rows // sequence_length
    rows = np.arange(num_rows).reshape(sequence_length, num_sequences)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(config.num_epochs):
        order = torch.randperm(num_sequences, generator=generator).numpy()
        count = config.num_minibatches
        if present is not None and sequence_length == 1:
            order = order[present[order]]
            count = max(1, min(count, len(order) // 2))
        if config.batch_size:
            share = config.batch_size * num_rows // config.rollout_size
            size = max(1, share // sequence_length)
            end = len(order) - (size > sequence_length == 1)
            drawn = np.split(order, range(size, end, size))
        else:
            drawn = np.array_split(order, count)
        for chosen in filter(len, drawn):
            yield rows[:, chosen].ravel()
