"""Random streams: each purpose and each index has its own, the same in every process."""

import pytest
from numpy.random import SeedSequence

from ppo.envs.seeding import Stream, integer_seed, seed_sequence


def test_streams_and_indices_do_not_share_seeds() -> None:
    seeds = [
        integer_seed(seed, stream, env_id, episode)
        for seed in (0, 1)
        for stream in Stream
        for env_id in range(5)
        for episode in range(5)
    ]
    assert len(set(seeds)) == len(seeds)


def test_golden_seeds_that_runs_recorded_earlier_depend_on() -> None:
    assert [stream.value for stream in Stream] == [1, 2, 3, 4, 5, 6]
    assert integer_seed(0, Stream.EPISODE, 0, 0) == 3964924996
    assert 0 <= integer_seed(2**32 - 1, Stream.SHUFFLE, 10**6) < 2**32


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32 - 1, 2**32, 2**40])
def test_all_seeds_are_mixed_as_numpy_mixes_a_list(seed: int) -> None:
    wanted = SeedSequence([seed, Stream.EVALUATION, 3, 2**32 - 1]).generate_state(8)
    found = seed_sequence(seed, Stream.EVALUATION, 3, 2**32 - 1).generate_state(8)
    assert found.tolist() == wanted.tolist()
