"""Random streams: each purpose and each index has its own, the same in every process."""

from ppo.envs.seeding import Stream, integer_seed


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
