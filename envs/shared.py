"""Arrays that several processes see."""

import ctypes
import math
import multiprocessing
from collections.abc import Sequence
from typing import Any

import numpy as np

PROCESSES = multiprocessing.get_context("spawn")


class SharedArray:
    """A zeroed numpy array that a child process gets to share by pickling. Its memory has no name in the file system,
    so that nothing is left of it however a process dies."""

    def __init__(self, shape: Sequence[int], dtype: Any) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self._memory: Any = PROCESSES.RawArray(
            ctypes.c_byte, math.prod(shape) * self.dtype.itemsize
        )

    @property
    def array(self) -> np.ndarray:
        return np.ndarray(self.shape, self.dtype, self._memory)
