"""Check what a batch returns, for all of its columns in one pass."""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy import ndarray

from ppo.envs.errors import InvalidEnvOutput
from ppo.envs.spaces import choices_of
from ppo.envs.trees import malformed
from ppo.envs.values import MAX_FLOAT32, describe_value
from ppo.extras.checks.observations import convert, largest_number


class CheckBatch:
    """Check a batch of observations in one pass, as CheckData checks those of one environment.

    space: a Box, or a leaf of a nested space that holds numbers; problems: what the vector
    environment should return instead of what was cast."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space: Any = space
        self.problems: dict[str, str] = {}
        self.is_box = isinstance(space, spaces.Box)
        self.low, self.high = _bounds(space)
        self.is_every_byte = (
            space.dtype == np.uint8 and (self.low == 0).all() and (self.high == 255).all()
        )

    def __call__(self, observations: ndarray) -> tuple[ndarray, ndarray]:
        """Return observations (n, *shape) in the dtype of the space, and (n,) how many numbers of
        each are outside of its bounds.

        Raises InvalidEnvOutput for another shape, for a dtype that would lose more than precision,
        for numbers that are not finite, and for choices that the space does not have."""
        num_envs = len(observations)
        space = self.space
        if observations.dtype != space.dtype:
            given = f"its observations are {observations.dtype}, not {space.dtype}"
            observations = convert(observations, space)
            if observations.dtype != space.dtype:
                raise InvalidEnvOutput(f"{given} {space.shape}")
            self.problems["observation"] = f"{given}, to which they are cast: return that"
        if observations.shape != (num_envs, *space.shape):
            raise malformed(observations, num_envs, space)
        if self.is_every_byte:
            return observations, np.zeros(num_envs, np.int64)
        is_inside = (self.low <= observations) & (observations <= self.high)
        if is_inside.all():
            return observations, np.zeros(num_envs, np.int64)
        if not self.is_box:
            _blame(observations, is_inside, f"outside of {space}")
        is_finite = np.abs(observations) <= largest_number(space.dtype)
        _blame(observations, is_finite, "not finite")
        return observations, (~is_inside).reshape(num_envs, -1).sum(axis=1)


def check_rewards(rewards: ndarray) -> None:
    """Raise InvalidEnvOutput if one of the rewards (n,) is not finite, as float32, too."""
    is_finite = np.abs(rewards) <= MAX_FLOAT32
    if not is_finite.all():
        column = int(np.argmin(is_finite))
        raise InvalidEnvOutput(
            f"its reward in column {column} is {rewards[column]}, not one finite number"
        )


def _bounds(space: Any) -> tuple[ndarray, ndarray]:
    """Return the least and the largest numbers of a leaf space, finite ones."""
    if isinstance(space, spaces.Box):
        largest = largest_number(space.dtype)
        return np.maximum(space.low, -largest), np.minimum(space.high, largest)
    start = np.asarray(getattr(space, "start", 0))
    return start, start + choices_of(space).reshape(space.shape) - 1


def _blame(observations: ndarray, is_valid: ndarray, problem: str) -> None:
    """Raise InvalidEnvOutput for the first column in which not everything is valid, if any."""
    columns = np.flatnonzero(~is_valid.reshape(len(observations), -1).all(axis=1))
    if columns.size:
        row = np.asarray(observations[columns[0]])
        raise InvalidEnvOutput(
            f"its observation {describe_value(row)} in column {columns[0]} is {problem}"
        )
