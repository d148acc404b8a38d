"""Split the rows of a batch at random, anew in each epoch."""

from typing import NamedTuple

import numpy as np
import torch
from numpy import ndarray

from ppo.config.config import Config


class Minibatch(NamedTuple):
    """Row indices (b,) of one minibatch.

    sequences: the indices (c,) of all rows that a recurrent network must read, if rows are only
    some of them."""

    rows: ndarray
    sequences: ndarray | None = None


def draw_minibatches(
    config: Config,
    num_rows: int,
    *,
    seed: int,
    sequence_length: int,
    present: ndarray | None = None,
) -> list[Minibatch]:
    """Split the rows of a batch, num_rows = T * N, at random, anew in each epoch; every row is used
    once.

    Makes --num_minibatches of sizes as equal as possible, or, given a --batch_size, minibatches of
    that many rows and a last one with the rest; a batch that is only some of the rollout has its
    share of them. Runs of sequence_length rows of one environment stay together and in order.
    present: (T * N,) bool, the rows to use; None for all. A minibatch without any is left out.
    """
    num_sequences = num_rows // sequence_length
    rows = np.arange(num_rows).reshape(sequence_length, num_sequences)
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(config.num_epochs):
        order = torch.randperm(num_sequences, generator=generator).numpy()
        if present is not None:
            order = order[present[rows[:, order]].any(0)]
        if config.batch_size:
            size = config.batch_size * num_rows // config.rollout_size
            size = max(1, size // sequence_length)
            drawn = np.split(order, range(size, num_sequences, size))
        else:
            drawn = np.array_split(order, config.num_minibatches)
        for chosen in filter(len, drawn):
            sequences = rows[:, chosen].ravel()
            if present is None or sequence_length == 1:
                found.append(Minibatch(sequences))
            else:
                found.append(Minibatch(sequences[present[sequences]], sequences))
    return found
