"""The numbers that a policy can use, and how values are described."""

from typing import Any

import numpy as np

MAX_FLOAT32 = float(np.finfo(np.float32).max)  # a larger number would be infinite in a policy
MAX_SIZE_FOR_PYTHON = 64  # numbers, up to which Python compares faster than numpy


def describe_value(value: Any) -> str:
    """Describe a value in a few words, with its shape and dtype if it is an array."""
    kind = ""
    if isinstance(value, np.ndarray):
        kind = f"{value.dtype} {value.shape} "
        if value.size <= MAX_SIZE_FOR_PYTHON:
            value = value.tolist()
    text = " ".join(repr(value).split())
    if len(text) > 120:
        text = text[:120] + "..."
    return kind + text
