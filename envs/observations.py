"""Flatten nested observations into one Box that remembers its parts."""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial, reduce
from operator import getitem
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Env, Space, Wrapper, spaces
from numpy import ndarray

from ppo.envs.episodes import Info, StepResult
from ppo.envs.spaces import holds_numbers, leaves

Boxes = dict[str, Any]  # by the names of their parts

MIN_SIDE_OF_PIXELS = 36  # uint8 arrays with shorter sides hold categories, such as MiniGrid's
ONE_HOT = np.eye(16, dtype=np.float32)  # of categories 0 to 15; larger ones count as 15
PIXELS = ("pixels", "color")  # kinds of ShownPart that are images
FINE = 1e-3  # a float32 that is rounded to multiples of this or less is precise enough


def kind_of(space: Space[Any], image: str) -> str:
    """Return how a leaf space is observed: "pixels", "categories", "numbers" or "left out".

    image: how uint8 arrays (H, W) and (H, W, C) are observed: "gray" or "color", as pixels,
    "categories", or "auto", which decides by their size. Text and spaces without a fixed number of
    numbers are left out."""
    if not holds_numbers(space):
        return "left out"
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
        return "numbers"
    if len(space.shape) not in (2, 3):
        return "numbers"
    is_small = max(space.shape[:2]) < MIN_SIDE_OF_PIXELS
    if image == "categories" or (image == "auto" and is_small):
        return "categories"
    return "pixels"


def num_numbers(space: Space[Any], image: str) -> int:
    """Return how many numbers an observation of a space holds besides pixels, which are resized."""
    found = (leaf for _, leaf in leaves(space) if kind_of(leaf, image) != "left out")
    return sum(spaces.flatdim(leaf) for leaf in found if kind_of(leaf, image) != "pixels")


class ShownPart(NamedTuple):
    """A part of an observation as the environment shows it.

    path: of keys to it; space: of what is shown; read: makes a flat vector of that, or an image
    (size, size, channels), the newest of a stack; kind: that of kind_of, "color" for pixels with
    three colours."""

    path: tuple[Any, ...]
    space: Any
    read: Callable[[Any], Any]
    kind: str = "numbers"


def shown_of(space: spaces.Box) -> dict[str, ShownPart]:
    """Return the parts of observations as the environment shows them, by name."""
    return getattr(space, "shown", None) or {"observation": ShownPart((), space, np.ravel)}


class ObserveParts(Wrapper):
    """Flatten nested observations of numbers and images into one Box.

    Observations without images become one vector, as by gymnasium.spaces.flatten. A single image
    becomes (size, size, channels) uint8, in an array that is reused. An image and other parts are
    packed into a row of bytes: the vectors as float32, or as float64 where float32 would round
    them, then the pixels of each image, padded with zeros to a multiple of four or eight bytes.

    observation_space has four dicts by the names of parts: parts (their Boxes), places (their
    slices), shown (a ShownPart each) and treatment (descriptions for the user). The name of a
    nested part joins its keys by dots. image: "gray", "color", "categories" or "auto" (see
    kind_of), which is gray where there are pixels; size, num_images: of a
    ppo.envs.images.ImageStack."""

    def __init__(self, env: Env, image: str, size: int, num_images: int) -> None:
        super().__init__(env)
        self.readers: list[tuple[str, tuple[Any, ...], Callable[[Any], Any]]] = []
        self.stacks: list[Any] = []
        vectors: Boxes = {}
        images: Boxes = {}
        treatment = {}
        shown: dict[str, ShownPart] = {}
        dtypes = []  # of numbers
        rounded = [np.dtype(np.float32)]  # and of those among them that are no choices
        for path, leaf in leaves(env.observation_space):
            name = ".".join(map(str, path)) or "observation"
            kind = kind_of(leaf, image)
            if kind == "left out":
                treatment[name] = f"{type(leaf).__name__}, left out"
                continue
            read: Any = partial(spaces.flatten, leaf)
            shown[name] = ShownPart(path, leaf, read, kind)
            if kind == "pixels":
                from ppo.envs.images import ImageStack

                stack = ImageStack(leaf, size, num_images, image == "color")
                shown[name] = ShownPart(path, leaf, stack.read, "color" if stack.is_color else kind)
                self.stacks.append(stack)
                images[name] = stack.space
                treatment[name] = stack.treatment
                read = stack
            elif kind == "categories":
                read = encode_categories
                shown[name] = ShownPart(path, leaf, read, kind)
                vectors[name] = spaces.Box(0, 1, (leaf.low.size * len(ONE_HOT),))
                treatment[name] = f"{leaf.shape} categories, one-hot"
            else:
                vectors[name] = spaces.flatten_space(leaf)
                dtypes.append(vectors[name].dtype)
                if isinstance(leaf, spaces.Box):
                    rounded.append(leaf.dtype)
                treatment[name] = f"vector of {spaces.flatdim(leaf)}"
            self.readers.append((name, path, read))
        is_vector = len(dtypes) == len(self.readers)
        dtype = np.result_type(*(dtypes if is_vector else rounded))
        vectors = {name: spaces.Box(x.low, x.high, dtype=dtype) for name, x in vectors.items()}
        self.observation_space = self.space = join(vectors, images)
        self.space.shown = shown
        self.space.treatment = treatment

    def reset(self, **options: Any) -> tuple[ndarray, Info]:
        observation, info = self.env.reset(**options)
        for stack in self.stacks:
            stack.clear()
        return self._read(observation), info

    def step(self, action: Any) -> StepResult:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._read(observation), reward, terminated, truncated, info

    def restore(self, observation: ndarray) -> None:
        """Restore the image stack from the last observation, which must be a single image."""
        self.stacks[0].restore(observation)

    def _read(self, observation: Any) -> ndarray:
        found = {
            name: read(reduce(getitem, path, observation)) for name, path, read in self.readers
        }
        if len(found) > 1:
            return pack(self.space, found)
        return found.popitem()[1]


def encode_categories(image: ndarray) -> ndarray:
    """One-hot encode an image of categories: return a vector with 16 entries for each number."""
    return ONE_HOT.take(image.ravel(), axis=0, mode="clip").ravel()


def join(vectors: Boxes, images: Boxes) -> Any:
    """Join the Boxes of all parts to the Box of flattened observations, with parts and places."""
    parts = vectors | images
    boxes = [*parts.values()]
    if images and len(boxes) > 1:
        num_bytes = sum(box.low.nbytes for box in boxes)
        unit = max(4, *(box.dtype.itemsize for box in boxes))
        space: Any = spaces.Box(0, 255, (-(-num_bytes // unit) * unit,), np.uint8)
    else:
        low = np.concatenate([box.low for box in boxes])
        space = spaces.Box(low, np.concatenate([box.high for box in boxes]), dtype=low.dtype)
    space.parts = parts
    space.places = {}
    start = 0
    for name, box in parts.items():
        stop = start + box.low.nbytes // space.dtype.itemsize
        space.places[name] = slice(start, stop)
        start = stop
    return space


def some_parts(space: Any, names: Collection[str]) -> Any:
    """Return the Box of flattened observations of some parts only, as an environment that shows no
    others would have it."""
    kinds: tuple[Boxes, Boxes] = ({}, {})  # vectors and images
    for name, box in space.parts.items():
        if name in names:
            kinds[space.shown[name].kind in PIXELS][name] = box
    found = join(*kinds)
    found.shown = {name: space.shown[name] for name in found.parts}
    return found


def pack(space: Any, parts: Mapping[str, Any]) -> ndarray:
    """Pack parts, given by name, into one flattened observation; missing parts are zeros.

    Raises ValueError for a part of another size."""
    if not hasattr(space, "parts"):  # a Box as it is
        (part,) = parts.values()
        return np.asarray(part, space.dtype).reshape(space.shape)
    observation = np.zeros(space.shape, space.dtype)
    row = observation.reshape(-1)
    for name, part in parts.items():
        box = space.parts[name]
        row[space.places[name]].view(box.dtype)[:] = np.reshape(part, box.shape).ravel()
    return observation


def split_rows(space: Any, rows: ndarray) -> Iterator[tuple[str, Any, ndarray]]:
    """Yield the name of each part of flattened observations (n, *observation), its space as the
    environment shows it, and its numbers (n, K)."""
    for name, box in getattr(space, "parts", {"observation": space}).items():
        leaf = space
        numbers = rows.reshape(len(rows), -1)
        if hasattr(space, "shown"):
            leaf = space.shown[name].space
            numbers = numbers[:, space.places[name]].view(box.dtype)
        yield name, leaf, numbers


def rounded_parts(space: Any, rows: ndarray) -> Iterator[tuple[str, float]]:
    """Yield the name of each part that float32 rounds to about as much as it varies in flattened
    observations (n, *observation), and that to whose multiples it is rounded."""
    for name, leaf, numbers in split_rows(space, rows):
        if leaf.dtype == np.float32:
            steps = np.spacing(np.abs(numbers).max(0).astype(np.float32))
            is_rounded = (steps > FINE) & (numbers.std(0, dtype=np.float64) < 8 * steps)
            if is_rounded.any():
                yield name, steps[is_rounded].max().item()


def describe_rounding(name: str, multiple: float) -> str:
    """Return a sentence for the user about one of rounded_parts."""
    part = "" if name == "observation" else f" of {name}"
    return (
        f"float32 rounds observations{part} to multiples of {multiple:g}, and they vary by little "
        "more: give float64, in their space, too, or subtract what is common to them"
    )
