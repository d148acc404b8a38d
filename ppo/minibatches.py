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
    """Yield the row indices (b,) of the minibatches of all epochs, each row once in each epoch.
    Minibatches are --num_minibatches of nearly equal sizes or, given a --batch_size, have that many
    rows (its share, if the batch is a part of the rollout), the last one the rest. There a lone
    row, which has no variance for batch normalization, joins the minibatch before. Sequences of
    sequence_length rows of one environment stay whole. present: (T * N,) bool, the rows to use."""
    num_sequences = num_rows // sequence_length
    rows = np.arange(num_rows).reshape(sequence_length, num_sequences)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(config.num_epochs):
        order = torch.randperm(num_sequences, generator=generator).numpy()
        count = config.num_minibatches
        if present is not None:  # leave out steps or sequences without any
            order = order[np.any(present[rows], axis=0)[order]]
            count = max(1, min(count, len(order) // (2 if sequence_length == 1 else 1)))
        if config.batch_size:
            share = config.batch_size * num_rows // config.rollout_size
            size = max(1, share // sequence_length)
            has_lone_row = sequence_length == 1 < size and len(order) % size == 1
            end = len(order) - has_lone_row
            drawn = np.split(order, range(size, end, size))
        else:
            drawn = np.array_split(order, count)
        for chosen in filter(len, drawn):
            yield rows[:, chosen].ravel()
