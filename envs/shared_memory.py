"""Arrays in memory that several processes share."""

import ctypes
import math
import multiprocessing
from collections.abc import Sequence
from io import BytesIO
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import ForkingPickler
from pickle import Unpickler
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from ppo.system.hardware import ALIGNMENT

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

PROCESSES = multiprocessing.get_context("spawn")


class SharedArray:
    """A zeroed numpy array in memory shared with child processes that are started with it.

    It begins at a multiple of 64 bytes, so that ppo.models.tensors.as_tensor need not copy it. Sent
    to a process that is already running, it is copied. The memory has no name in the file system,
    so that nothing is left over however a process ends."""

    def __init__(self, shape: Sequence[int], dtype: "DTypeLike") -> None:
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        size = math.prod(shape) * self.dtype.itemsize
        self._memory = PROCESSES.RawArray("b", size + ALIGNMENT)
        self._offset = -ctypes.addressof(self._memory) % ALIGNMENT  # the same in each process

    def __getstate__(self) -> dict[str, Any]:
        if get_spawning_popen():
            return vars(self)
        return {**vars(self), "_memory": bytearray(self._memory)}

    @property
    def array(self) -> ndarray:
        return np.ndarray(self.shape, self.dtype, self._memory, self._offset)


class Parcel:
    """An object, which may contain shared arrays, for a child process that is started with it.

    It is pickled into shared memory: the pipe through which multiprocessing starts a child holds
    64 KiB, and with more than that, the parent waits for ever for a child that was stopped or
    killed. And it is unpickled only by unpack, where the child can handle errors."""

    def __init__(self, content: Any) -> None:
        pickler = _Pickler(file := BytesIO())
        pickler.dump(content)
        self.arrays = pickler.arrays
        self.memory = SharedArray((file.tell(),), np.uint8)
        self.memory.array[:] = np.frombuffer(file.getbuffer(), np.uint8)

    def unpack(self) -> Any:
        """Return the object."""
        return _Unpickler(BytesIO(self.memory.array.data), self.arrays).load()


class _Pickler(ForkingPickler):
    """Leave out shared arrays, which only multiprocessing can send, and list them."""

    def __init__(self, file: BytesIO) -> None:
        super().__init__(file)
        self.arrays: list[SharedArray] = []

    def persistent_id(self, part: Any) -> int | None:
        if not isinstance(part, SharedArray):
            return None
        self.arrays.append(part)
        return len(self.arrays) - 1


class _Unpickler(Unpickler):
    def __init__(self, file: BytesIO, arrays: list[SharedArray]) -> None:
        super().__init__(file)
        self.arrays = arrays

    def persistent_load(self, index: int) -> SharedArray:
        return self.arrays[index]
