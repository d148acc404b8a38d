"""Arrays in memory that several processes share."""

import math
import multiprocessing
from collections.abc import Sequence
from typing import Any

import numpy as np

PROCESSES = multiprocessing.get_context("spawn")


class SharedArray:
    """A zeroed numpy array that a child process shares when it unpickles it.

    Its memory has no name in the file system: nothing is left of it however a process dies."""

    def __init__(self, shape: Sequence[int], dtype: Any) -> None:
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        size = math.prod(shape) * self.dtype.itemsize
        self._memory = PROCESSES.RawArray("b", size)

    @property
    def array(self) -> Any:
        return np.ndarray(self.shape, self.dtype, self._memory)
