"""Splitting a batch into minibatches."""

from types import SimpleNamespace

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
        SimpleNamespace(
            num_steps=size,
            num_envs=1,
            num_epochs=num_epochs,
            num_minibatches=num_minibatches,
            batch_size=None,
        ),
        seed=seed,
        sequence_length=1,
        env_ids=range(1),
    )
    for part in parts:
        minibatch = {name: tensor[part.rows] for name, tensor in batch.items()}
        assert part.weight == 1
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


def test_the_seed_alone_decides_the_order():
    original = epochs(100, 4, seed=7)
    torch.rand(1)
    assert epochs(100, 4, seed=7) == original
    assert epochs(100, 4, seed=8) != original
