"""Where randomness comes from: a stream for each purpose, so that none depends on timing or layout."""

from enum import IntEnum

import numpy as np

Stream = IntEnum("Stream", ["EPISODE", "ACTION", "MODEL", "SHUFFLE", "EVALUATION"])


def seed_sequence(seed: int, stream: Stream, *index: int) -> np.random.SeedSequence:
    """A stream's entropy at an index: (environment, episode), say, or (environment, iteration)."""
    return np.random.SeedSequence([seed, stream, *index])


def integer_seed(seed: int, stream: Stream, *index: int) -> int:
    """The same as one 32-bit integer, for gymnasium and torch."""
    return int(seed_sequence(seed, stream, *index).generate_state(1)[0])
