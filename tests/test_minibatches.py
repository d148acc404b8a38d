"""Splitting a batch into minibatches."""

from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppo.config import Config
from ppo.minibatches import draw_minibatches


def drawn(num_rows: int, *, seed: int = 0, length: int = 1, **flags: Any) -> list[list[int]]:
    config = Config(**{"num_epochs": 1, "num_envs": 1, "num_steps": num_rows, **flags})
    parts = draw_minibatches(config, num_rows, seed=seed, sequence_length=length)
    return [part.tolist() for part in parts]


@given(
    st.integers(1, 50).flatmap(lambda size: st.tuples(st.just(size), st.integers(1, size))),
    st.integers(1, 3),
)
def test_each_epoch_has_every_row_once_in_minibatches_of_even_size(sizes, num_epochs):
    size, count = sizes
    parts = drawn(size, num_minibatches=count, num_epochs=num_epochs)
    assert len(parts) == count * num_epochs
    for first in range(0, len(parts), count):
        epoch = parts[first : first + count]
        lengths = [len(part) for part in epoch]
        assert max(lengths) - min(lengths) <= 1
        assert sorted(chain(*epoch)) == [*range(size)]


def test_each_epoch_and_each_seed_has_another_order_that_repeats_with_the_seed():
    first, second = (drawn(100, num_epochs=2, num_minibatches=1, seed=seed) for seed in (0, 1))
    orders = [*first, *second]
    assert len({tuple(order) for order in orders}) == 4
    assert all(order != sorted(order) for order in orders)
    assert drawn(100, num_epochs=2, num_minibatches=1, seed=1) == second


@pytest.mark.parametrize(
    ("size", "sizes"), [(16, [16, 17]), (1, [1] * 33), (40, [33]), (7, [7] * 4 + [5])]
)
def test_the_last_minibatch_of_a_batch_size_takes_the_remaining_rows(size, sizes):
    parts = drawn(33, batch_size=size)
    assert [len(part) for part in parts] == sizes
    assert sorted(chain(*parts)) == [*range(33)]


def test_a_batch_size_is_that_of_the_whole_rollout():
    parts = drawn(16, num_steps=32, batch_size=8)  # the half of it that one of two ranks has
    assert [len(part) for part in parts] == [4] * 4


@pytest.mark.parametrize("flags", [{"batch_size": 3}, {"num_minibatches": 4}])
@pytest.mark.parametrize("count", [2, 4, 5, 7, 31])
def test_no_present_row_is_alone(flags, count):
    present = np.arange(33) < count
    config = Config(num_epochs=3, num_envs=3, num_steps=11, **flags)
    parts = [*draw_minibatches(config, 33, seed=0, present=present)]
    assert min(map(len, parts)) > 1
    assert sorted(np.concatenate(parts)) == [x for x in range(count) for _ in range(3)]


def test_sequences_stay_whole_and_in_the_order_of_time():
    T, N = 6, 4
    for part in drawn(T * N, num_minibatches=2, length=T, num_epochs=3):
        steps, environments = np.divmod(np.reshape(part, (T, -1)), N)
        assert (steps == np.arange(T)[:, None]).all()
        assert (environments == environments[0]).all()
        assert len({*environments[0]}) == 2


def test_a_sequence_without_present_rows_is_not_drawn():
    present = np.arange(12).reshape(4, 3) % 3 != 1
    config = Config(num_epochs=1, num_envs=3, num_steps=4, batch_size=4)
    parts = draw_minibatches(config, 12, seed=0, sequence_length=4, present=present.ravel())
    assert sorted(part.tolist() for part in parts) == [[0, 3, 6, 9], [2, 5, 8, 11]]
