"""Numpy arrays in memory that the trainer shares with its workers."""

import ctypes
import math
from collections.abc import Sequence
from multiprocessing.sharedctypes import RawArray
from typing import Any

import numpy as np
from numpy import ndarray

ALIGNMENT = 64  # bytes: a cache line


class SharedArray:
    """A zeroed array, shared with child processes that receive it as an argument of their start.
    It has no name in the file system, so that nothing remains after a kill."""

    def __init__(self, shape: Sequence[int], dtype: Any) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.memory = RawArray("B", math.prod(shape) * self.dtype.itemsize + ALIGNMENT)

    @property
    def array(self) -> ndarray:
        """The memory as an array, which begins at a multiple of ALIGNMENT."""
        first = -ctypes.addressof(self.memory) % ALIGNMENT
        return ndarray(self.shape, self.dtype, self.memory, first)
