"""Observations: from what an environment returns, however nested, to rows of a few tables. All
numbers are one table, each image is one of its own. A Box of numbers and a single image keep their
shape, in a table named "observations"."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import reduce
from operator import getitem
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, flatdim, flatten
from numpy import ndarray

from ppo.config import Config
from ppo.envs.spaces import Path, holds_numbers, leaves
from ppo.errors import BadValue

NUMBERS = "observations"  # the table of numbers, or the only one
MIN_SIDE = 36  # pixels of the longer side of an image; smaller arrays are numbers
IMAGE_FORMS = "a CNN reads uint8 (H, W), (H, W, C) or (C, H, W) with a side >= 36; use a wrapper"


class Part(NamedTuple):
    """A leaf of an observation space."""

    name: str
    path: Path
    space: Any

    @property
    def is_image(self) -> bool:
        """Whether it is (H, W), (H, W, C) or (C, H, W) of uint8."""
        shape = self.space.shape
        sides = shape[1:] if has_channels_first(shape) else shape[:2]
        is_large = len(shape) in (2, 3) and max(sides) >= MIN_SIDE
        return is_large and isinstance(self.space, Box) and self.space.dtype == np.uint8

    def array(self, observation: Any) -> ndarray:
        """Return this part of an observation, in the dtype of its space. Raises BadValue."""
        name = f" {self.name}" if self.path else ""
        try:
            value = reduce(getitem, self.path, observation)
        except (LookupError, TypeError) as error:
            raise BadValue(f"its observation lacks{name}") from error
        return shaped(value, self.space, name)

    def vector(self, observation: Any) -> Any:
        """Return the numbers of this part (K,). Raises BadValue for a choice that is not there."""
        array = self.array(observation)
        if isinstance(self.space, Box):
            return array.ravel()
        if not self.space.contains(array):
            raise BadValue(f"its observation {array} is not in {self.space}")
        return flatten(self.space, array)


def has_channels_first(shape: Sequence[int]) -> bool:
    """Return whether an image of this shape is (C, H, W)."""
    return len(shape) == 3 and shape[0] < min(shape[1:])


class Layout:
    """How observations of a space are kept in tables. tables: the space of a row of each, by name;
    vectors, images: the parts that are observed; columns: of each part in the table of numbers, by
    name; is_plain: whether an observation is a row of this table as it is."""

    def __init__(self, space: Any, config: Config) -> None:
        self.config = config
        found = [
            Part(".".join(map(str, path)) or NUMBERS, path, leaf)
            for path, leaf in leaves(space)
            if holds_numbers(leaf)
        ]
        self.vectors = [part for part in found if not part.is_image]
        self.images = [part for part in found if part.is_image]
        self.has_numbers = bool(self.vectors)
        stack = config.frame_stack
        self.num_vectors = 1 if self.images or stack == "auto" else stack
        self.columns: dict[str, slice] = {}
        self.tables: dict[str, Box] = {}
        alone = isinstance(space, Box) and self.num_vectors == 1 and not self.images
        self.is_plain = alone and space.shape != ()
        if self.is_plain:
            self.tables[NUMBERS] = space
        elif self.vectors:
            size = 0
            dtypes: list[Any] = [np.float32 if self.images else np.uint8]  # bool has no limits
            for part in self.vectors:
                width = flatdim(part.space)
                self.columns[part.name] = slice(size, size + width)
                size += width
                if isinstance(part.space, Box) or not self.images:
                    dtypes.append(part.space.dtype)
            dtype: Any = np.result_type(*dtypes).type
            is_whole = np.issubdtype(dtype, np.integer)
            limits: Any = np.iinfo(dtype) if is_whole else np.finfo(dtype)
            shape = (size * self.num_vectors,)
            self.tables[NUMBERS] = Box(limits.min, limits.max, shape, dtype)
        for part in self.images:
            self.tables[self.table_of(part)] = self.make_stack(part).space

    @property
    def hints(self) -> list[str]:
        """What to tell the user of numbers that may be meant as images."""
        shapes = [(x, sorted(x.space.shape)) for x in self.vectors if len(x.space.shape) > 1]
        large = [x for x, (*_, side, _) in shapes if side >= MIN_SIDE // 2]
        return [
            f"{x.name} {x.space.shape} {x.space.dtype} is not an image: {IMAGE_FORMS}"
            for x in large
        ]

    def table_of(self, image: Part) -> str:
        """Return the name of an image's table."""
        return f"images.{image.name}" if self.vectors or len(self.images) > 1 else NUMBERS

    def make_stack(self, image: Part) -> Any:
        from ppo.envs.images import ImageStack  # loads OpenCV

        return ImageStack(image.space, self.config)

    def named(self, tables: Mapping[str, Any]) -> Any:
        """Return what a network reads, of tables (B, ...): the only table, or a dict with the
        columns (B, K) of each part of numbers and each image (B, H, W, C), by the part's name."""
        if len(self.tables) == 1:
            return tables[NUMBERS]
        found = {name: tables[NUMBERS][:, columns] for name, columns in self.columns.items()}
        return found | {part.name: tables[self.table_of(part)] for part in self.images}


class Reader:
    """Read the observations of one episode, and remember those that are stacked."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.stacks = [(x, layout.table_of(x), layout.make_stack(x)) for x in layout.images]
        self.history: list[ndarray] = []

    def __call__(self, observation: Any) -> dict[str, ndarray]:
        """Return a row of each table. Raises BadValue for another shape than the space's."""
        layout = self.layout
        if layout.is_plain:
            return {NUMBERS: layout.vectors[0].array(observation)}
        rows = {name: stack(part.array(observation)) for part, name, stack in self.stacks}
        if layout.vectors:
            vectors = [part.vector(observation) for part in layout.vectors]
            newest = np.concatenate(vectors, dtype=layout.tables[NUMBERS].dtype, casting="unsafe")
            previous = self.history or [newest] * layout.num_vectors
            self.history = [*previous[1:], newest]
            rows[NUMBERS] = np.concatenate(self.history)
        return rows


def shaped(value: Any, space: Any, name: str = "") -> ndarray:
    """Return a value as an array of its space's dtype. Raises BadValue for another shape, or for
    numbers that the dtype does not hold: numpy would write one number to a whole row, or 0 for
    0.5."""
    try:
        given = np.asarray(value)
        array = given.astype(space.dtype, copy=False)
        is_lossy = space.dtype.kind in "biu" and array is not given and (array != given).any()
    except Exception as error:
        with suppress(AttributeError):  # a tensor with a gradient, or on a GPU
            return shaped(value.numpy(force=True), space, name)
        raise BadValue(f"its observation{name} {value!r:.200} is not of {space.dtype}") from error
    if array.shape != space.shape or is_lossy:
        found, needed = (f"{x.shape} of {x.dtype}" for x in (given, space))
        sentence = f"its observation{name} is {found}, which does not fit into {needed} unchanged"
        raise BadValue(sentence)
    return array
