"""Spaces: from a policy's actions to the environment's, masks, and their form in JSON."""

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from hypothesis import given
from hypothesis import strategies as st

from ppo.config import Config
from ppo.envs.spaces import (
    action_converter,
    box_scale,
    from_json,
    to_json,
)
from ppo.models.distributions import policy_head

SHAPES = st.sampled_from([(), (1,), (3,), (2, 2)])
CASTING = pytest.mark.filterwarnings("ignore:.*Casting input")  # gymnasium's, of no dimensions


CHOICES = st.one_of(
    st.builds(lambda n, start: Discrete(n, start=start), st.integers(1, 5), st.integers(-3, 3)),
    st.sampled_from([[3], [2, 3], [[1, 2], [4, 2]]]).map(
        lambda nvec: MultiDiscrete(nvec, start=np.array(nvec) - 2)
    ),
    st.sampled_from([(1,), (3,), (2, 2)]).map(MultiBinary),
)
BOXES = st.builds(
    lambda low, size, shape, dtype: Box(dtype(low), dtype(low) + dtype(size), shape, dtype),
    st.floats(-3, 3),
    st.floats(0.1, 5),
    SHAPES,
    st.sampled_from([np.float32, np.float64]),
)
INTEGERS = st.builds(
    lambda low, size, shape, dtype: Box(low, low + size, shape, dtype),
    st.integers(-100, 20),
    st.integers(1, 100),
    SHAPES,
    st.sampled_from([np.int8, np.int32]),
)
HALF_OPEN = st.builds(lambda low, shape: Box(low, np.inf, shape), st.floats(-3, 3), SHAPES)


def head_of(space: Any) -> Any:
    """The head of a policy whose distributions are wide, and differ in all choices."""
    torch.manual_seed(0)
    head = policy_head(3, space, Config(log_std_init=2.0))
    for parameter in head.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter)
    return head.requires_grad_(False)


def draw(head: Any, count: int, mask: Any = None) -> Any:
    """Actions (count, D) of the policy."""
    distribution = head(torch.randn(count, 3, generator=torch.Generator().manual_seed(1)))
    if mask is not None:
        distribution = distribution.masked(torch.from_numpy(mask).expand(count, -1))
    noise = head.draw_noise(np.random.default_rng(0), count)
    return distribution.sample(torch.from_numpy(noise)).numpy()


def meant(space: Any, numbers: Iterator[Any]) -> Any:
    """Return the member of a space that an iterator's next numbers stand for."""
    flat: Any = [next(numbers) for _ in range(math.prod(space.shape))]
    if isinstance(space, Discrete):
        return space.start + int(flat[0])
    if isinstance(space, Box):
        shift, factor = (x.ravel() for x in box_scale(space))
        flat = shift + factor * np.array(flat, float)
        flat = np.clip(flat, space.low.ravel(), space.high.ravel()).reshape(space.shape)
        return np.rint(flat) if space.dtype.kind == "i" else flat
    start = np.ravel(getattr(space, "start", np.zeros(space.shape, int)))
    return np.reshape([int(x) + first for x, first in zip(flat, start, strict=True)], space.shape)


@CASTING
@given(CHOICES | BOXES | HALF_OPEN | INTEGERS | st.just(Box(-1, 1, (3,))))
def test_whatever_a_policy_draws_is_a_member_of_the_space_and_the_one_that_is_meant(space):
    drawn = draw(head_of(space), 16)
    before = drawn.copy()
    actions = list(action_converter(space)(drawn))
    assert (drawn == before).all()  # which is what is learned from
    assert len(actions) == 16
    for action, row in zip(actions, drawn, strict=True):
        assert space.contains(action)
        np.testing.assert_allclose(action, meant(space, iter(row)), rtol=1e-5)


@pytest.mark.parametrize(
    ("low", "high", "shift", "factor"),
    [
        (300, 500, 400, 100),
        (-1000, 1000, 0, 1000),
        (0.001, 0.002, 0.0015, 0.0005),
        (0, 10, 5, 5),
        (-0.4, 0.4, 0, 0.4),
        (0, 1, 0.5, 0.5),
        (-1, 1, 0, 1),
        (7, 7, 7, 0),
        (-1e10, 1e10, 0, 1e10),
        (0, np.inf, 0, 1),
        (-np.inf, np.inf, 0, 1),
        (-3.4e38, 3.4e38, 0, 1),
    ],
)
def test_the_policys_unit_is_half_of_a_range_that_is_finite(low, high, shift, factor):
    """Each number by itself: here beside one of [-1, 1]."""
    box = Box(np.float32([low, -1]), np.float32([high, 1]))
    np.testing.assert_allclose(box_scale(box), [[shift, 0], [factor, 1]], rtol=1e-4)


def test_the_order_of_a_dict_is_kept_in_json():
    space = Dict([("b", Box(0, 1, (2,))), ("a", Discrete(3))])
    found = from_json(json.loads(json.dumps(to_json(space))))
    assert [*found] == ["b", "a"]
    assert found == space
