"""Numpy arrays in memory that the trainer shares with its workers."""

import math
import mmap
import os
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy import ndarray

from ppo.errors import ConfigError

ALIGNMENT = 64  # bytes: a cache line
Shapes = Mapping[str, tuple[tuple[int, ...], Any]]  # shape and dtype of each array, by name


def open_memory() -> int:
    """Return the descriptor of an empty file in memory. It has no name in the file system, so that
    nothing remains after a kill."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("ppo")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def map_arrays(file: int, shapes: Shapes) -> dict[str, ndarray]:
    """Return arrays in the memory of a file, at first zero, each at a multiple of ALIGNMENT. Raises
    ConfigError if there is not that much memory."""
    offsets = {}
    size = 0
    for name, (shape, dtype) in shapes.items():
        offsets[name] = size
        num_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        size += math.ceil(num_bytes / ALIGNMENT) * ALIGNMENT
    try:
        os.ftruncate(file, size)
        memory = mmap.mmap(file, size)
    except (OSError, OverflowError, ValueError) as error:
        raise ConfigError("not enough memory for --num_envs x --num_steps: use fewer") from error
    return {
        name: ndarray(shape, dtype, memory, offsets[name])
        for name, (shape, dtype) in shapes.items()
    }
