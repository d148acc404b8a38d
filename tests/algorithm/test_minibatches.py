"""Splitting a batch into minibatches."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ppo.algorithm.minibatches import draw_minibatches


def epochs(size, num_minibatches, num_epochs=2, seed=0):
    """Rows of each minibatch of each epoch."""
    batch = {
        "observations": torch.arange(2 * size).reshape(size, 2),
        "rewards": 10 * torch.arange(size),
    }
    rows = []
    parts = draw_minibatches(
        SimpleNamespace(num_epochs=num_epochs, num_minibatches=num_minibatches, batch_size=None),
        size,
        seed=seed,
        sequence_length=1,
    )
    for part in parts:
        minibatch = {name: tensor[part.rows] for name, tensor in batch.items()}
        rows.append((minibatch["rewards"] // 10).tolist())
        assert minibatch["observations"].tolist() == [[2 * row, 2 * row + 1] for row in rows[-1]]
    return [rows[i : i + num_minibatches] for i in range(0, len(rows), num_minibatches)]


@settings(deadline=None)
@given(
    st.integers(1, 50).flatmap(lambda size: st.tuples(st.just(size), st.integers(1, size))),
    st.integers(0, 3),
)
def test_each_epoch_has_every_row_once_in_minibatches_of_even_size(sizes, num_epochs):
    size, num_minibatches = sizes
    split = epochs(size, num_minibatches, num_epochs)
    assert len(split) == num_epochs
    for epoch in split:
        lengths = [len(minibatch) for minibatch in epoch]
        assert len(lengths) == num_minibatches
        assert max(lengths) - min(lengths) <= 1
        assert sorted(row for minibatch in epoch for row in minibatch) == list(range(size))


def test_each_epoch_has_another_order():
    first, second = epochs(100, 4)
    assert first != second
    assert all(epoch != sorted(epoch) for epoch in (first, second))


def test_a_batch_size_is_that_of_all_processes() -> None:
    config = SimpleNamespace(num_epochs=1, num_minibatches=1, batch_size=6, rollout_size=24)
    for num_rows, sizes in ((24, [6] * 4), (12, [3] * 4), (8, [2] * 4)):
        parts = draw_minibatches(config, num_rows, seed=0, sequence_length=1)
        assert [len(part.rows) for part in parts] == sizes


@pytest.mark.parametrize("length", [1, 6])
def test_absent_rows_are_left_out(length: int) -> None:
    config = SimpleNamespace(num_epochs=1, num_minibatches=2, batch_size=None)
    present = np.ones((6, 4), bool)
    present[2:, 1] = False
    present[:, 3] = False
    parts = draw_minibatches(config, 24, seed=0, sequence_length=length, present=present.ravel())
    assert sorted(np.concatenate([x.rows for x in parts])) == np.flatnonzero(present).tolist()
    for part in parts:
        if length == 1:
            assert part.sequences is None
        else:  # all rows of its environments, in the order of time
            steps, environments = np.divmod(part.sequences, 4)
            assert (np.diff(steps) >= 0).all()
            assert {*part.rows} == {x for x in part.sequences if present.ravel()[x]}
            assert 3 not in environments
