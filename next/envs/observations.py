"""Observations: from what an environment returns, however nested, to rows of a few tables.

All numbers of an observation are one table, each image is one of its own. A Box of numbers and a
single image keep their shape, in a table named "observations"."""

from collections.abc import Callable, Mapping
from functools import reduce
from operator import getitem
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces
from gymnasium.spaces import Box
from numpy import ndarray

from ppo.envs.spaces import holds_numbers, leaves
from ppo.errors import BadValue

if TYPE_CHECKING:
    from ppo.config import Config

NUMBERS = "observations"  # the table of numbers, or the only one
MIN_SIDE_OF_PIXELS = 36  # smaller uint8 arrays hold categories, such as MiniGrid's
ONE_HOT = np.eye(16, dtype=np.float32)  # of categories 0 to 15; larger ones count as 15


class Part(NamedTuple):
    """A leaf of an observation space. kind: "numbers", "categories" or "pixels"."""

    name: str
    path: tuple[Any, ...]
    space: Any
    kind: str


def kind_of(space: Space[Any], image: str) -> str:
    """Return how a leaf is observed, as in Part, or "" if it has no fixed number of numbers.

    image: --image, how arrays (H, W) and (H, W, C) of uint8 are observed."""
    if not holds_numbers(space):
        return ""
    if not isinstance(space, Box) or space.dtype != np.uint8 or len(space.shape) not in (2, 3):
        return "numbers"
    is_small = max(space.shape[:2]) < MIN_SIDE_OF_PIXELS
    if image == "categories" or (image == "auto" and is_small):
        return "categories"
    return "pixels"


class Layout:
    """How observations of a space are kept in tables.

    tables: the space of a row of each, by name; parts: leaves that are observed; columns: those of
    each part of numbers in the table of numbers; left_out: names of other leaves."""

    def __init__(self, space: Space[Any], config: "Config") -> None:
        self.space = space
        self.config = config
        self.parts: list[Part] = []
        self.left_out: list[str] = []
        for path, leaf in leaves(space):
            name = ".".join(map(str, path)) or NUMBERS
            if kind := kind_of(leaf, config.image):
                self.parts.append(Part(name, path, leaf, kind))
            else:
                self.left_out.append(name)
        self.images = [part for part in self.parts if part.kind == "pixels"]
        self.vectors = [part for part in self.parts if part.kind != "pixels"]
        stack = config.frame_stack
        num_images = 4 if stack == "auto" else stack
        self.num_vectors = 1 if self.images or stack == "auto" else stack
        self.num_images = num_images
        self.tables: dict[str, Box] = {}
        self.columns: dict[str, slice] = {}
        if self.vectors:
            self.tables[NUMBERS] = self._numbers()
        is_alone = len(self.parts) == 1
        for part in self.images:
            name = NUMBERS if is_alone else f"images.{part.name}"
            self.tables[name] = self.make_stack(part).space

    @property
    def is_plain(self) -> bool:
        """Whether an observation is one Box of numbers, and a row of the table as it is."""
        return len(self.vectors) == len(self.parts) == self.num_vectors == 1 and not self.columns

    @property
    def has_numbers(self) -> bool:
        return bool(self.vectors)

    def make_stack(self, part: Part) -> Any:
        """Make the ImageStack of a part that is an image."""
        from ppo.envs.images import ImageStack  # loads OpenCV

        return ImageStack(
            part.space,
            size=self.config.screen_size,
            num_images=self.num_images,
            in_color=self.config.image == "color",
        )

    def named(self, tables: Mapping[str, Any]) -> Any:
        """Return what a network reads, of tables (B, ...): the only table, or a dict with the
        columns (B, K) of each part of numbers and each image (B, H, W, C), by the part's name."""
        if len(self.tables) == 1:
            return tables[NUMBERS]
        found = {name: tables[NUMBERS][:, columns] for name, columns in self.columns.items()}
        return found | {part.name: tables[f"images.{part.name}"] for part in self.images}

    def _numbers(self) -> Box:
        """Return the space of a row of the table of numbers, and set columns."""
        first = self.vectors[0]
        is_alone = len(self.parts) == self.num_vectors == 1 and first.kind == "numbers"
        if is_alone and isinstance(first.space, Box) and first.space.shape:
            return first.space
        boxes = []
        dtypes = [np.dtype(np.float32)]
        for part in self.vectors:
            if part.kind == "categories":
                boxes.append(Box(0, 1, (part.space.low.size * len(ONE_HOT),)))
            else:
                boxes.append(spaces.flatten_space(part.space))
                if isinstance(part.space, Box):
                    dtypes.append(boxes[-1].dtype)
            start = sum(box.shape[0] for box in boxes[:-1])
            self.columns[part.name] = slice(start, start + boxes[-1].shape[0])
        is_flat = not self.images and all(part.kind == "numbers" for part in self.vectors)
        dtype = np.result_type(*[box.dtype for box in boxes] if is_flat else dtypes)
        low, high = (
            np.tile(np.concatenate([getattr(box, bound) for box in boxes]), self.num_vectors)
            for bound in ("low", "high")
        )
        return Box(low.astype(dtype), high.astype(dtype), dtype=dtype.type)


class Reader:
    """Read the observations of one environment, and remember those that are stacked."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.stacks = {part.name: layout.make_stack(part) for part in layout.images}
        self.history: list[ndarray] = []
        self.space = layout.tables[NUMBERS] if layout.has_numbers else layout.space
        self.row_readers = [_reader_of(part) for part in layout.vectors]

    def clear(self) -> None:
        """Forget the episode that is over."""
        self.history = []
        for stack in self.stacks.values():
            stack.clear()

    def __call__(self, observation: Any) -> dict[str, Any]:
        """Return a row of each table. Raises BadValue for another shape than the space's."""
        layout = self.layout
        if layout.is_plain:
            return {NUMBERS: shaped(observation, self.space)}
        rows: dict[str, Any] = {}
        if layout.has_numbers:
            rows[NUMBERS] = self._numbers(observation)
        for part in layout.images:
            image = shaped(reduce(getitem, part.path, observation), part.space, part.name)
            name = NUMBERS if len(layout.parts) == 1 else f"images.{part.name}"
            rows[name] = self.stacks[part.name](image)
        return rows

    def _numbers(self, observation: Any) -> ndarray:
        found = [read(observation) for read in self.row_readers]
        newest = np.concatenate(found, dtype=self.space.dtype, casting="unsafe")
        if self.layout.num_vectors == 1:
            return newest
        previous = self.history or [newest] * self.layout.num_vectors
        self.history = [*previous[1:], newest]
        return np.concatenate(self.history)


def shaped(value: Any, space: Space[Any], name: str = "") -> ndarray:
    """Return a value as an array. Raises BadValue unless it has the shape of its space: numpy
    would write a single number to a whole row without a word."""
    array = np.asarray(value)
    if array.shape != space.shape:
        about = f"observation {name}".strip()
        raise BadValue(f"its {about} has the shape {array.shape}, its space {space.shape}")
    return array


def _reader_of(part: Part) -> Callable[[Any], ndarray]:
    """Return a function from an observation to the numbers (K,) of a part."""
    name, path, space, kind = part

    def read(observation: Any) -> ndarray:
        leaf = reduce(getitem, path, observation)
        if isinstance(space, spaces.Discrete):
            return spaces.flatten(space, int(leaf))
        array = shaped(leaf, space, name)
        if kind == "categories":
            return ONE_HOT.take(array.ravel(), axis=0, mode="clip").ravel()
        return array.ravel() if isinstance(space, Box) else spaces.flatten(space, array)

    return read
