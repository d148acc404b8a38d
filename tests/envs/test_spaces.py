"""Spaces of every kind: learning, actions as they ask for, observations as gymnasium has them."""

import itertools
import math
from functools import reduce
from operator import getitem
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from ppo.envs.errors import EnvironmentUnavailable
from ppo.envs.spaces import (
    INSIDE,
    action_columns,
    action_converter,
    leaves,
    mask_converter,
)
from ppo.models.distributions import policy_head
from tests.environments import SPACES
from tests.running import make_env, trained

KINDS = ("Discrete", "Box", "MultiDiscrete", "MultiBinary")
QUICK = {
    "num_envs": 32,
    "num_steps": 8,
    "total_steps": 24 * 256,
    "num_epochs": 4,
    "num_minibatches": 4,
    "learning_rate": 5e-3,
    "gamma": 0.0,
    "clip_coef": 0.2,
    "normalize_observations": True,
}


def score(env_name: str, **values: Any) -> float:
    """Return the mean reward of a step, at best 1, of the most likely actions after training."""
    policy = trained(env_name, **{**QUICK, **values}).policy()
    return policy.evaluate(32, num_envs=32).mean / 5


@pytest.mark.slow_but_first
@pytest.mark.parametrize(("shown", "done"), list(itertools.product(KINDS, KINDS)))
def test_actions_of_any_kind_are_learned_from_observations_of_any_kind(
    shown: str, done: str
) -> None:
    assert score("Identity-v0", env_kwargs={"shown": shown, "done": done}) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shown", "done"),
    [
        ("Dict", "Tuple"),
        ("Tuple", "Dict"),
        ("Grid", "Grid"),
        ("From1", "From1"),
        ("Unbounded", "Unbounded"),
        ("Integers", "Integers"),
        ("Discrete", "NumpyCategorical"),
    ],
)
def test_nested_and_unusual_spaces_are_learned_in(shown: str, done: str) -> None:
    assert score("Identity-v0", env_kwargs={"shown": shown, "done": done}) > 0.9


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    "values",
    [
        {"use_sde": True},
        {"squash_actions": True},
        {"use_sde": True, "squash_actions": True},
        {"model": "lstm"},
        {"share_trunk": True},
    ],
    ids=str,
)
def test_options_are_learned_with(values: dict[str, Any]) -> None:
    assert score("Identity-v0", env_kwargs={"shown": "Box", "done": "Box"}, **values) > 0.9


def test_what_is_right_among_the_allowed_actions_is_learned() -> None:
    assert score("Masked-v0") > 0.9  # a forbidden one would raise, in training as in evaluation


ARRAYS = (np.float32, np.float64)
SHAPES = st.sampled_from([(), (1,), (3,), (2, 2)])
STARTS = st.integers(-3, 3)
CASTING = pytest.mark.filterwarnings(
    "ignore:.*Casting input"
)  # gymnasium's, of arrays without dimensions


def with_start(nvec: np.ndarray, start: int) -> spaces.MultiDiscrete:
    return spaces.MultiDiscrete(
        nvec, start=np.full(nvec.shape, start) + np.arange(nvec.size).reshape(nvec.shape)
    )


DISCRETE = st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 5), STARTS)
MULTI_DISCRETE = st.builds(
    lambda shape, seed, start: with_start(np.random.default_rng(seed).integers(1, 5, shape), start),
    st.sampled_from([(1,), (3,), (2, 2)]),
    st.integers(0, 99),
    STARTS,
)
MULTI_BINARY = st.sampled_from([1, 3, (2, 2)]).map(spaces.MultiBinary)
CHOICES = st.one_of(DISCRETE, MULTI_DISCRETE, MULTI_BINARY)
BOXES = st.builds(
    lambda low, size, shape, dtype: spaces.Box(dtype(low), dtype(low) + dtype(size), shape, dtype),
    st.floats(-3, 3),
    st.floats(0.1, 5),
    SHAPES,
    st.sampled_from(ARRAYS),
)
INTEGERS = st.builds(
    lambda bounds, shape, dtype: spaces.Box(min(bounds), max(bounds) + 1, shape, dtype),
    st.lists(st.integers(-100, 100), min_size=2, max_size=2),
    SHAPES,
    st.sampled_from([np.int8, np.int32]),
) | st.builds(lambda low, shape: spaces.Box(low, 255, shape, np.uint8), st.integers(0, 200), SHAPES)
HALF_OPEN = st.builds(lambda low, shape: spaces.Box(low, np.inf, shape), st.floats(-3, 3), SHAPES)


def nested(simple: st.SearchStrategy) -> st.SearchStrategy:
    """Spaces of a kind, and Tuples and Dicts of them."""

    def combined(inner: st.SearchStrategy) -> st.SearchStrategy:
        parts = st.lists(inner, min_size=1, max_size=3)
        return parts.map(spaces.Tuple) | parts.map(
            lambda p: spaces.Dict(list(zip("zax", p, strict=False)))
        )

    return st.recursive(simple, combined, max_leaves=5)


def head_of(space: Any, squash: bool = False) -> Any:
    """The head of a policy whose distributions are wide, and differ in all choices."""
    torch.manual_seed(0)
    head = policy_head(
        3, space, SimpleNamespace(use_sde=False, squash_actions=squash, log_std_init=2.0)
    )
    for parameter in head.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter)
    return head.requires_grad_(False)


def draw(head: Any, count: int, mask: np.ndarray | None = None) -> np.ndarray:
    """Actions (count, D) of the policy."""
    distribution = head(torch.randn(count, 3, generator=torch.Generator().manual_seed(1)))
    if mask is not None:
        distribution = distribution.masked(torch.from_numpy(mask).expand(count, -1))
    return distribution.sample(
        torch.from_numpy(head.draw_noise(np.random.default_rng(0), count))
    ).numpy()


def meant(space: Any, numbers: Any) -> Any:
    """Return the member of a space that an iterator's next numbers stand for."""
    if isinstance(space, spaces.Dict):
        return {key: meant(part, numbers) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(meant(part, numbers) for part in space)
    flat = [next(numbers) for _ in range(math.prod(space.shape))]
    if isinstance(space, spaces.Discrete):
        return space.start + int(flat[0])
    if isinstance(space, spaces.Box):
        flat = np.rint(flat) if space.dtype.kind in "iu" else flat
        bounds = zip(flat, space.low.ravel(), space.high.ravel(), strict=True)
        return np.reshape([min(max(x, low), high) for x, low, high in bounds], space.shape)
    start = np.ravel(getattr(space, "start", np.zeros(space.shape, int)))
    return np.reshape([int(x) + first for x, first in zip(flat, start, strict=True)], space.shape)


def assert_same(one: Any, other: Any) -> None:
    if isinstance(other, (dict, tuple)):
        assert type(one) is type(other)
        assert len(one) == len(other)
        for key in other if isinstance(other, dict) else range(len(other)):
            assert_same(one[key], other[key])
    else:
        np.testing.assert_allclose(one, other, rtol=1e-6)


@CASTING
@settings(deadline=None, max_examples=40)
@given(nested(CHOICES | BOXES | HALF_OPEN | INTEGERS))
def test_whatever_a_policy_draws_is_a_member_of_the_space_and_the_one_that_is_meant(
    space: Any,
) -> None:
    drawn = draw(head_of(space), 16)
    actions = list(action_converter(space)(drawn))
    assert len(actions) == 16
    for action, row in zip(actions, drawn, strict=True):
        assert space.contains(action)
        assert_same(action, meant(space, iter(row)))


@CASTING
@settings(deadline=None, max_examples=40)
@given(nested(BOXES | CHOICES))
def test_whatever_is_squashed_is_a_member_of_the_space(space: Any) -> None:
    drawn = draw(head_of(space, squash=True), 16)
    assert all(space.contains(action) for action in action_converter(space, squash=True)(drawn))


def parts_of(space: Any, actions: Any) -> list[np.ndarray]:
    """An array (n, ...) of actions for each leaf of a space."""
    return [
        np.stack([reduce(getitem, path, action) for action in actions]) for path, _ in leaves(space)
    ]


@CASTING
@settings(deadline=None, max_examples=40)
@given(nested(CHOICES | BOXES | HALF_OPEN | INTEGERS), st.booleans())
def test_the_inverse_of_the_conversion_leads_to_the_same_actions(space: Any, drawn: bool) -> None:
    """Of what a policy draws, and of what is anywhere in the space."""
    convert = action_converter(space)
    space.seed(0)
    actions = convert(draw(head_of(space), 16)) if drawn else [space.sample() for _ in range(16)]
    wanted = parts_of(space, actions)
    columns = action_columns(space, wanted)
    assert columns.dtype == head_of(space).action_dtype
    for found, own in zip(parts_of(space, convert(columns)), wanted, strict=True):
        assert found.dtype == own.dtype
        # float64 goes through float32, whose smallest number is 1e-38.
        np.testing.assert_allclose(found, own, rtol=1e-6, atol=1e-37)


@CASTING
@settings(deadline=None, max_examples=40)
@given(nested(CHOICES | BOXES | INTEGERS), st.booleans())
def test_the_inverse_of_squashing_leads_to_the_same_actions(space: Any, at_bounds: bool) -> None:
    space.seed(0)
    wanted = parts_of(space, [space.sample() for _ in range(16)])
    found_leaves = [leaf for _, leaf in leaves(space)]
    if at_bounds:
        for leaf, own in zip(found_leaves, wanted, strict=True):
            own[:8] = getattr(leaf, "low", own[:8])
            own[8:] = getattr(leaf, "high", own[8:])
    columns = action_columns(space, wanted, squash=True)
    assert np.isfinite(columns).all()
    again = parts_of(space, action_converter(space, squash=True)(columns))
    for leaf, found, own in zip(found_leaves, again, wanted, strict=True):
        size = np.max(leaf.high - leaf.low, initial=0) if own.dtype.kind == "f" else 0
        tolerance = size * max((1 - INSIDE) / 2, 2 * np.finfo(own.dtype).eps) if size else 0
        np.testing.assert_allclose(found, own, rtol=1e-6 if size else 0, atol=1.01 * tolerance)


@settings(deadline=None)
@given(INTEGERS)
def test_squashed_integers_reach_from_bound_to_bound(space: spaces.Box) -> None:
    size = math.prod(space.shape)
    drawn = np.array([[-20.0] * size, [20.0] * size], np.float32)
    lowest, highest = action_converter(space, squash=True)(drawn)
    np.testing.assert_array_equal(lowest, space.low)
    np.testing.assert_array_equal(highest, space.high)


def test_squashed_numbers_fill_their_box_and_integers_are_rounded() -> None:
    def convert(space: Any, *row: float, squash: bool = False) -> Any:
        (action,) = action_converter(space, squash)(np.array([row]))
        return action

    box = spaces.Box(np.float32([-1, 0]), np.float32([1, 10]))
    squashed = [0.4621172, 5 - 5 * 0.7615942]  # tanh of each, from bound to bound
    np.testing.assert_allclose(convert(box, 0.5, -1, squash=True), squashed, rtol=1e-6)
    np.testing.assert_allclose(convert(box, -20, 20, squash=True), [-1, 10], rtol=1e-6)
    assert convert(SPACES["Integers"], 5, -3.9).tolist() == [3, -3]
    assert convert(SPACES["Integers"], 1.6, -0.4).tolist() == [2, 0]


def test_actions_have_the_dtype_of_their_box() -> None:
    for dtype in (np.float64, np.int32, np.uint8):
        for squash in (False, True):
            convert = action_converter(spaces.Box(0, 100, (2,), dtype), squash)
            assert convert(np.ones((1, 2), np.float32))[0].dtype == dtype
    convert = action_converter(spaces.MultiDiscrete([3, 2], dtype=np.int8))
    assert convert(np.ones((1, 2), np.int64))[0].dtype == np.int8


def allow(space: Any, random: np.random.Generator) -> Any:
    """A mask as an environment may give it: of each choice some, and at least one."""
    if isinstance(space, spaces.Dict):
        return {key: allow(part, random) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(allow(part, random) for part in space)
    if isinstance(space, spaces.Box) or random.random() < 0.2:
        return None
    masks = [random.integers(0, 2, size, np.int8) for size in sizes_of(space)]
    for mask in masks:
        mask[random.integers(len(mask))] = 1
    form = random.integers(3)
    return (
        tuple(masks)
        if form == 0
        else np.concatenate(masks)
        if form == 1
        else np.concatenate(masks).tolist()
    )


def sizes_of(space: Any) -> list[int]:
    """The number of actions in each choice of a space."""
    if isinstance(space, spaces.MultiBinary):
        return [2] * math.prod(space.shape)
    return np.ravel(getattr(space, "nvec", getattr(space, "n", None))).tolist()


def is_allowed(space: Any, allowed: Any, action: Any) -> bool:
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        keys = space.keys() if isinstance(space, spaces.Dict) else range(len(space))
        return all(is_allowed(space[key], allowed[key], action[key]) for key in keys)
    if allowed is None:
        return True
    flat, first = np.hstack(allowed), 0
    for size, choice in zip(
        sizes_of(space), np.ravel(action - getattr(space, "start", 0)), strict=True
    ):
        if not flat[first + choice]:
            return False
        first += size
    return True


@CASTING
@settings(deadline=None, max_examples=40)
@given(nested(CHOICES | BOXES), st.integers(0, 2**32))
def test_a_policy_draws_only_what_is_allowed_and_all_of_it(space: Any, seed: int) -> None:
    allowed = allow(space, np.random.default_rng(seed))
    mask = mask_converter(space)(allowed)
    head = head_of(space)
    assert mask.shape == (head.mask_size,)
    for action in action_converter(space)(draw(head, 32, mask)):
        assert space.contains(action)
        assert is_allowed(space, allowed, action)


def test_a_part_that_a_mask_leaves_out_is_free() -> None:
    for space, allowed, mask in (
        (spaces.MultiDiscrete([2, 3]), None, [1, 1, 0, 1, 1, 1]),  # as wide as the widest choice
        (SPACES["NumpyCategorical"], ([0, 1, 0],), [0, 1, 0, 1, 1, 1, 1]),
        (SPACES["Dict"], {"a": [0, 1]}, [0, 1, 1, 1, 1, 1]),
    ):
        assert mask_converter(space)(allowed).tolist() == [bool(bit) for bit in mask]


@pytest.mark.parametrize(
    ("space", "allowed", "said"),
    [
        (spaces.Discrete(3), [1, 1], None),
        (spaces.Discrete(3), [1], None),
        (spaces.MultiDiscrete([3, 2]), ([1, 1, 1],), None),
        (SPACES["NumpyCategorical"], ([1, 1, 1, 1], None), None),
        (spaces.Discrete(3), [0.0, -np.inf, 0.0], "is not 3 zeros and ones"),
        (spaces.MultiDiscrete([3, 2]), [1, 1, 1, 0, 0], "allows no action"),
        (SPACES["Dict"], {"a": [0, 0], "b": None, "c": None}, "allows no action"),
    ],
    ids=str,
)
def test_a_mask_that_cannot_be_one_is_refused(space: Any, allowed: Any, said: str | None) -> None:
    with pytest.raises(ValueError, match=said):
        mask_converter(space)(allowed)


@pytest.mark.parametrize(
    "shown",
    ["From1", "MultiDiscrete", "MultiBinary", "Dict", "NumpyCategorical"],
)
def test_observations_are_flattened_as_gymnasium_does(shown: str) -> None:
    def observations(env: gymnasium.Env) -> list[Any]:
        return [env.reset(seed=0)[0], *(env.step(1)[0] for _ in range(4))]

    kwargs = {"shown": shown, "done": "Discrete"}
    env = make_env("tests.environments:Identity-v0", env_kwargs=kwargs)
    plain = gymnasium.make("tests.environments:Identity-v0", disable_env_checker=True, **kwargs)
    assert env.observation_space == spaces.flatten_space(SPACES[shown])
    for ours, theirs in zip(observations(env), observations(plain), strict=True):
        assert env.observation_space.contains(ours)
        np.testing.assert_array_equal(ours, spaces.flatten(SPACES[shown], theirs))


class Has(gymnasium.Env):
    """Observes in one space and acts in another."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self.observation_space, self.action_space = observation_space, action_space


def test_spaces_without_a_size_are_refused() -> None:
    number, text = spaces.Box(-1, 1, (1,)), spaces.Text(5)
    sequence, graph = spaces.Sequence(number), spaces.Graph(number, None)
    nested_ones = (spaces.Tuple([number, graph]), spaces.Dict({"a": number, "b": text}))
    refused = [(shown, number) for shown in (sequence, graph, text, spaces.Tuple([]))]
    refused += [(number, done) for done in (sequence, graph, text, spaces.Tuple([]), *nested_ones)]
    said = r"^--env_name=tests.envs.test_spaces:Has observes .*: choose another"
    for shown, done in refused:
        kwargs = {"observation_space": shown, "action_space": done}
        with pytest.raises(EnvironmentUnavailable, match=said):
            make_env("tests.envs.test_spaces:Has", env_kwargs=kwargs)
