"""Observations: from what an environment returns, however nested, to rows of a few tables.

All numbers of an observation are one table, each image is one of its own. A Box of numbers and a
single image keep their shape, in a table named "observations"."""

from collections.abc import Mapping
from functools import reduce
from operator import getitem
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces
from gymnasium.spaces import Box
from numpy import ndarray

from ppo.config import Config
from ppo.envs.spaces import holds_numbers, leaves
from ppo.errors import BadValue

NUMBERS = "observations"  # the table of numbers, or the only one
MIN_SIDE = 36  # of an image in pixels; smaller arrays are numbers


class Part(NamedTuple):
    """A leaf of an observation space, with its path of keys."""

    name: str
    path: tuple[Any, ...]
    space: Any

    @property
    def is_image(self) -> bool:
        """Whether it is (H, W), (H, W, C) or (C, H, W) of uint8."""
        shape = self.space.shape or ()
        is_large = len(shape) in (2, 3) and max(shape[:2]) >= MIN_SIDE
        return is_large and isinstance(self.space, Box) and self.space.dtype == np.uint8

    def array(self, observation: Any) -> ndarray:
        """Return what an observation holds of this part. Raises BadValue for another shape."""
        return shaped(reduce(getitem, self.path, observation), self.space, self.name)

    def vector(self, observation: Any) -> Any:
        """Return the numbers of this part (K,). Raises BadValue for another shape."""
        if isinstance(self.space, Box):
            return self.array(observation).ravel()
        if isinstance(self.space, spaces.Discrete):
            return spaces.flatten(self.space, int(reduce(getitem, self.path, observation)))
        return spaces.flatten(self.space, self.array(observation))


class Layout:
    """How observations of a space are kept in tables.

    tables: the space of a row of each, by name; vectors, images: the parts that are observed;
    columns: of each part in the table of numbers, by name; is_plain: whether an observation is a
    row of this table as it is."""

    def __init__(self, space: Space[Any], config: Config) -> None:
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
        self.num_images = 4 if stack == "auto" else stack
        self.num_vectors = 1 if self.images or stack == "auto" else stack
        self.columns: dict[str, slice] = {}
        self.tables: dict[str, Box] = {}
        if self.vectors:
            self.tables[NUMBERS] = self._table_of_numbers()
        for part in self.images:
            self.tables[self.table_of(part)] = self.make_stack(part).space
        self.is_plain = not (self.images or self.columns)

    def table_of(self, image: Part) -> str:
        """Return the name of an image's table."""
        return f"images.{image.name}" if self.vectors or len(self.images) > 1 else NUMBERS

    def make_stack(self, image: Part) -> Any:
        """Make the ImageStack of an image."""
        from ppo.envs.images import ImageStack  # loads OpenCV

        size, in_color = self.config.screen_size, self.config.image == "color"
        return ImageStack(image.space, size=size, num_images=self.num_images, in_color=in_color)

    def named(self, tables: Mapping[str, Any]) -> Any:
        """Return what a network reads, of tables (B, ...): the only table, or a dict with the
        columns (B, K) of each part of numbers and each image (B, H, W, C), by the part's name."""
        if len(self.tables) == 1:
            return tables[NUMBERS]
        found = {name: tables[NUMBERS][:, columns] for name, columns in self.columns.items()}
        return found | {part.name: tables[self.table_of(part)] for part in self.images}

    def _table_of_numbers(self) -> Box:
        """Return the space of a row of the table of numbers, and set columns."""
        first = self.vectors[0].space
        is_alone = len(self.vectors) == self.num_vectors == 1 and not self.images
        if is_alone and isinstance(first, Box) and first.shape:
            return first
        dtypes = [np.dtype(np.float32)] if self.images else []
        size = 0
        for part in self.vectors:
            flat: Any = spaces.flatten_space(part.space)
            self.columns[part.name] = slice(size, size + flat.shape[0])
            size += flat.shape[0]
            if isinstance(part.space, Box) or not self.images:
                dtypes.append(flat.dtype)
        dtype: Any = np.result_type(*dtypes).type
        return Box(-np.inf, np.inf, (size * self.num_vectors,), dtype)


class Reader:
    """Read the observations of one environment, and remember those that are stacked."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.stacks = [(x, layout.table_of(x), layout.make_stack(x)) for x in layout.images]
        self.clear()

    def clear(self) -> None:
        """Forget the episode that is over."""
        self.history: list[ndarray] = []
        for *_, stack in self.stacks:
            stack.clear()

    def __call__(self, observation: Any) -> dict[str, ndarray]:
        """Return a row of each table. Raises BadValue for another shape than the space's."""
        layout = self.layout
        if layout.is_plain:
            return {NUMBERS: shaped(observation, layout.tables[NUMBERS])}
        rows = {name: stack(part.array(observation)) for part, name, stack in self.stacks}
        if layout.vectors:
            vectors = [part.vector(observation) for part in layout.vectors]
            dtype = layout.tables[NUMBERS].dtype
            newest = np.concatenate(vectors, dtype=dtype, casting="unsafe")
            previous = self.history or [newest] * layout.num_vectors
            self.history = [*previous[1:], newest]
            rows[NUMBERS] = np.concatenate(self.history)
        return rows


def shaped(value: Any, space: Space[Any], name: str = "") -> ndarray:
    """Return a value as an array. Raises BadValue unless it has the shape of its space: numpy
    would write a single number to a whole row without a word."""
    array = np.asarray(value)
    if array.shape != space.shape:
        about = f"observation {name}".strip()
        raise BadValue(f"its {about} has the shape {array.shape}, its space {space.shape}")
    return array
