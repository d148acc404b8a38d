"""Numpy arrays in memory that the trainer shares with its workers."""

import math
from collections.abc import Sequence
from multiprocessing.sharedctypes import RawArray
from typing import Any

import numpy as np
from numpy import ndarray

ALIGNMENT = 64  # bytes: a cache line


class SharedArray:
    """A zeroed array, shared with child processes that receive it as an argument of their start.

    Its memory has no name in the file system, so that nothing remains after a kill."""

    def __init__(self, shape: Sequence[int], dtype: Any) -> None:
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.num_bytes = math.prod(self.shape) * self.dtype.itemsize
        self.memory = RawArray("B", self.num_bytes + ALIGNMENT)

    @property
    def array(self) -> ndarray:
        """The memory as an array, which begins at a multiple of ALIGNMENT."""
        buffer = np.frombuffer(self.memory, np.uint8)
        first = -buffer.ctypes.data % ALIGNMENT
        own = buffer[first : first + self.num_bytes]
        return own.view(self.dtype).reshape(self.shape)
