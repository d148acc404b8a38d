"""Random streams, one for each purpose, so that no random number depends on timing or layout."""

from enum import IntEnum

import numpy as np
from numpy.random import SeedSequence

Stream = IntEnum("Stream", ["EPISODE", "ACTION", "MODEL", "SHUFFLE", "EVALUATION"])


def seed_sequence(seed: int, stream: Stream, *index: int) -> SeedSequence:
    """Return the SeedSequence of a stream at an index such as (environment, episode)."""
    numbers = [seed, stream, *index]
    if max(numbers) < 2**32:  # the same words, in a quarter of the time
        return SeedSequence(np.array(numbers, np.uint32))
    return SeedSequence(numbers)


def integer_seed(seed: int, stream: Stream, *index: int) -> int:
    """Return the first 32-bit integer of a seed sequence, for gymnasium and torch."""
    return int(seed_sequence(seed, stream, *index).generate_state(1)[0])
