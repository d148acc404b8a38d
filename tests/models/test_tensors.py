"""Tensors that share memory with numpy arrays."""

import numpy as np
import torch

from ppo.envs.shared_memory import SharedArray
from ppo.models.tensors import as_tensor


def test_a_tensor_begins_where_products_do_not_depend_on_where_memory_is() -> None:
    memory = np.arange(100, dtype=np.float32)
    for first in range(20):
        part = memory[first : first + 8]
        tensor = as_tensor(part)
        assert tensor.data_ptr() % 64 == 0
        assert tensor.tolist() == part.tolist()


def test_an_aligned_array_is_not_copied() -> None:
    for size in (1, 7, 4096):
        array = SharedArray((size, 3), np.float32).array
        tensor = as_tensor(array)
        array[:] = 5
        assert torch.equal(tensor, torch.full((size, 3), 5.0))
