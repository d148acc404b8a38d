"""Checks of what batches of environments return, column by column."""

import gymnasium
import numpy as np
import pytest

from ppo.envs.errors import InvalidEnvOutput
from ppo.extras.checks.batches import CheckBatch, check_rewards

BOX = gymnasium.spaces.Box(-1, 1, (2,))


def test_check_counts_numbers_outside_of_bounds() -> None:
    check = CheckBatch(BOX)
    given = np.array([[0, 1], [2, 0], [-2, 3]], np.float32)
    observations, num_outside = check(given)
    assert observations is given
    assert num_outside.tolist() == [0, 1, 2]
    assert check(given / 3)[1].tolist() == [0, 0, 0]
    unbounded = CheckBatch(gymnasium.spaces.Box(-np.inf, np.inf, (2,)))
    assert unbounded(given)[1].tolist() == [0, 0, 0]
    assert not check.problems


def test_check_casts_where_only_precision_is_lost() -> None:
    check = CheckBatch(BOX)
    observations, _ = check(np.full((3, 2), 0.1))
    assert observations.dtype == np.float32
    assert "are float64, not float32" in check.problems["observation"]
    whole = CheckBatch(gymnasium.spaces.Discrete(4))
    assert whole(np.array([1, 3], np.int32))[0].dtype == np.int64
    with pytest.raises(InvalidEnvOutput, match="its observations are float64, not int64"):
        whole(np.array([1.5, 3]))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_check_names_the_column_that_is_not_finite(value: float) -> None:
    given = np.zeros((3, 2), np.float32)
    given[2, 1] = value
    for space in (BOX, gymnasium.spaces.Box(-np.inf, np.inf, (2,))):
        with pytest.raises(InvalidEnvOutput, match=r"in column 2 is not finite"):
            CheckBatch(space)(given)
    large = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    with pytest.raises(InvalidEnvOutput, match=r"in column 1 is not finite"):
        CheckBatch(large)(np.array([[0, 1], [1e39, 0]]))
    half = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float16)
    with pytest.raises(InvalidEnvOutput, match=r"in column 2 is not finite"):
        CheckBatch(half)(given.astype(np.float16))
    with pytest.raises(InvalidEnvOutput, match="its reward in column 2 is"):
        check_rewards(given[:, 1])
    check_rewards(given[:, 0])


def test_check_of_shapes_and_choices() -> None:
    with pytest.raises(InvalidEnvOutput, match=r"float32 \(3, 1\) .*, not 3 of Box"):
        CheckBatch(BOX)(np.zeros((3, 1), np.float32))
    choices = CheckBatch(gymnasium.spaces.MultiDiscrete([2, 3], start=[0, 5]))
    assert choices(np.array([[1, 7]]))[1].tolist() == [0]
    with pytest.raises(InvalidEnvOutput, match=r"in column 1 is outside of MultiDiscrete"):
        choices(np.array([[1, 7], [1, 4]]))
    assert CheckBatch(gymnasium.spaces.MultiBinary(2))(np.ones((2, 2), np.int8))[1].sum() == 0
    image = np.zeros((2, 4, 4), np.uint8)
    assert CheckBatch(gymnasium.spaces.Box(0, 255, (4, 4), np.uint8))(image)[0] is image
