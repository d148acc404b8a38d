"""Tensors that share memory with numpy arrays."""

import torch
from numpy import ndarray
from torch import Tensor

from ppo.system.hardware import ALIGNMENT


def as_tensor(array: ndarray) -> Tensor:
    """Return an array as a tensor, a copy unless its memory begins at a multiple of 64 bytes.

    Products of matrices elsewhere in memory have other last bits, and where numpy allocates an
    array differs from run to run (Intel oneMKL, "Obtaining Numerically Reproducible Results").
    """
    tensor = torch.from_numpy(array)
    return tensor.clone() if tensor.data_ptr() % ALIGNMENT else tensor
