"""Observations: nested ones found again in tables, images as they should become, stacks."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces import Box, Dict, Discrete
from hypothesis import assume, given
from hypothesis import strategies as st

from ppo.config import Config
from ppo.envs.observations import NUMBERS, Layout, Part, Reader
from ppo.errors import BadValue, ConfigError
from ppo.extras import check
from ppo.settings import settle
from tests.running import VECTOR
from tests.worlds import Constant

WEIGHTS = np.array([0.299, 0.587, 0.114])  # of red, green and blue, by ITU-R BT.601


def reader_of(space: Any, **flags: Any) -> Reader:
    return Reader(Layout(space, Config(**{"frame_stack": 1, "screen_size": 20, **flags})))


KINDS: dict[str, Any] = {
    "image": Box(0, 255, (40, 37, 3), np.uint8),
    "gray image": Box(0, 255, (36, 50), np.uint8),
    "bytes": Box(0, 255, (35, 3), np.uint8),
    "box": Box(-1, 1, (2, 3), np.float64),
    "discrete": Discrete(3, start=1),
    "bits": spaces.MultiBinary(3),
    "choices": spaces.MultiDiscrete([2, 3]),
    "text": spaces.Text(4),
    "sequence": spaces.Sequence(Discrete(2)),
}


def nested(children: Any) -> Any:
    parts = st.lists(children, min_size=1, max_size=3).map(spaces.Tuple)
    keys = st.sampled_from("abc")
    return parts | st.dictionaries(keys, children, min_size=1, max_size=3).map(Dict)


def leaves_of(space: Any, observation: Any, path: tuple[str, ...] = ()) -> Any:
    """Yield name, space and value of each leaf."""
    if isinstance(space, (Dict, spaces.Tuple)):
        parts = space.items() if isinstance(space, Dict) else enumerate(space)
        for key, part in parts:
            yield from leaves_of(part, observation[key], (*path, str(key)))
    else:
        yield ".".join(path) or NUMBERS, space, observation


def showing(space: Any) -> Any:
    """Return a class of environments that shows samples of a space."""

    class Shown(Constant):
        observation_space = space

        def reset(self, **options: Any) -> Any:
            return space.sample(), super().reset(**options)[1]

        def step(self, action: Any) -> Any:
            return space.sample(), *super().step(action)[1:]

    return Shown


@given(
    st.recursive(st.sampled_from(sorted(KINDS)).map(KINDS.get), nested, max_leaves=5),
    st.integers(0, 99),
)
def test_every_part_is_found_again(space, seed):
    space.seed(seed)
    observation = space.sample()
    numbers, images = {}, {}
    for name, leaf, value in leaves_of(space, observation):
        if leaf in (KINDS["image"], KINDS["gray image"]):
            images[name] = reader_of(leaf)(value)[NUMBERS]
        elif leaf not in (KINDS["text"], KINDS["sequence"]):
            numbers[name] = spaces.flatten(leaf, value)
    expected = {**numbers, **images}
    assume(expected)
    read = reader_of(space)
    rows = read(observation)
    assert rows.keys() == read.layout.tables.keys()
    for name, row in rows.items():
        box = read.layout.tables[name]
        assert (row.shape, row.dtype) == (box.shape, box.dtype)
    found = read.layout.named({name: row[None] for name, row in rows.items()})
    if len(rows) == 1:
        found = {NUMBERS: found}
        if not images:
            expected = {NUMBERS: np.concatenate([*numbers.values()])}
        expected = {NUMBERS: next(iter(expected.values()))}
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        one = found[name][0] if value.ndim > 1 else found[name][0].ravel()
        np.testing.assert_array_equal(one, value.astype(one.dtype))


# Images.


def stack_of(images: Any, **flags: Any) -> Any:
    """Return a function that stacks images of an episode, and their space."""
    space = Box(0, 255, np.shape(images)[1:], np.uint8)
    return Layout(space, Config(**{"frame_stack": 1, **flags})).make_stack(Part(NUMBERS, (), space))


def noise(*shape: int) -> Any:
    return np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)


@pytest.mark.parametrize(
    ("shape", "is_image"),
    [
        *((x, True) for x in [(3, 30, 64), (3, 64, 30), (30, 64, 3), (1, 36, 20), (64, 30)]),
        *((x, False) for x in [(3, 35, 35), (35, 35, 3), (35, 35, 40)]),
    ],
)
def test_the_sides_without_the_channels_tell_an_image_from_numbers(shape, is_image):
    config = settle({"env_name": showing(Box(0, 255, shape, np.uint8))}).spaces.config
    assert config.model == ("cnn" if is_image else "mlp")


@pytest.mark.parametrize(
    "space",
    [
        Box(0, 255, (4, 40, 40, 3), np.uint8),
        Box(0, 1, (40, 50, 3)),
        Box(0, 1, (3, 30, 64)),
        Box(0, 255, (32, 32, 3), np.uint8),
        Dict(eye=Box(0, 1, (40, 40), np.float64), speed=VECTOR),
    ],
)
def test_numbers_that_look_like_images_are_noted_with_the_way(space, capsys):
    given = {"env_name": showing(space)}
    assert "a CNN reads uint8 (H, W)" in settle(given).notes[-1]
    with pytest.raises(ConfigError, match="a CNN reads uint8"):
        settle({**given, "model": "cnn"})
    check.main([], check.Flags(steps=2), given)
    assert "hint" in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize("shape", [(100, 4), (17, 17), (9, 9, 40)])
def test_other_numbers_are_not_noted(shape):
    assert len(settle({"env_name": showing(Box(0, 1, shape))}).notes) == 1


def test_the_oldest_image_is_first_and_the_first_one_fills_the_stack():
    slides = [np.full((100, 90), x, np.uint8) for x in (10, 20, 30, 40)]
    stack = stack_of(slides, frame_stack=3)
    expected = [[10, 10, 10], [10, 10, 20], [10, 20, 30], [20, 30, 40]]
    assert [stack(image)[5, 7].tolist() for image in slides] == expected


def test_colors_are_kept_if_asked_for_or_become_gray_by_how_bright_they_look():
    images = noise(2, 84, 84, 3)
    stack = stack_of(images, frame_stack=2, image="color")
    np.testing.assert_array_equal(stack(images[0]), np.concatenate([images[0]] * 2, 2))
    np.testing.assert_array_equal(stack(images[1]), np.concatenate([*images], 2))
    gray = stack_of(images)(images[0])[:, :, 0]
    assert np.abs(gray - images[0] @ WEIGHTS).max() <= 1


# What a space does not hold.


@pytest.mark.parametrize(
    ("space", "right", "wrong"),
    [
        (Discrete(3, start=1), [1, 3.0, np.int8(2)], [0, 4, 1.5, [1]]),
        (KINDS["choices"], [[1, 2], np.ones(2)], [[2, 0], [-1, 0], [0.5, 0], [1]]),
        (KINDS["bits"], [[0, 1, True]], [[0, 1, 2], [0, -1, 0]]),
        (Box(0, 255, (2,), np.uint8), [[3, 255], [3.0, 0.0]], [[300, 0], [-1, 0], [0.5, 0]]),
        (Box(0, 255, (40, 40), np.uint8), [], [np.full((40, 40), 0.5)]),
        (Box(0, 1, (2,)), [[5, 1], np.ones(2)], [1.0, [1.0]]),
        (Box(0, 1, (2,), np.bool_), [[True, 0]], [True, [[True]], [0.5, 1]]),
    ],
)
def test_numbers_that_the_space_does_not_hold_are_refused_and_not_cast(space, right, wrong):
    for place in ((), ("a",)):
        read = reader_of(Dict(a=space) if place else space)
        for value in right:
            found = read({"a": value} if place else value)[NUMBERS].ravel()
            wanted = spaces.flatten(space, np.asarray(value, space.dtype))
            np.testing.assert_array_equal(found, wanted)
        for value in wrong:
            with pytest.raises(BadValue, match="its observation"):
                read({"a": value} if place else value)
