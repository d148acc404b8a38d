"""Arrays in memory that several processes share."""

import math
import multiprocessing
from collections.abc import Sequence
from multiprocessing.context import get_spawning_popen

import numpy as np

PROCESSES = multiprocessing.get_context("spawn")


class SharedArray:
    """A zeroed numpy array in memory shared with child processes that are started with it.

    Sent to a process that is already running, it is copied. The memory has no name in the file
    system, so that nothing is left over however a process ends."""

    def __init__(self, shape: Sequence[int], dtype) -> None:
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        size = math.prod(shape) * self.dtype.itemsize
        self._memory = PROCESSES.RawArray("b", size)

    def __getstate__(self):
        if get_spawning_popen():
            return vars(self)
        return {**vars(self), "_memory": bytearray(self._memory)}

    @property
    def array(self):
        return np.ndarray(self.shape, self.dtype, self._memory)
