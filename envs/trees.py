"""Convert nested arrays of torch, jax or numpy to numpy, and back."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Space, spaces
from numpy import ndarray

from ppo.envs.errors import InvalidEnvOutput
from ppo.envs.spaces import holds_numbers
from ppo.envs.values import describe_value

if TYPE_CHECKING:
    import torch  # heavy


def map_arrays(function: Callable[..., Any], *trees: Any) -> Any:
    """Apply a function to the arrays of nested dicts and tuples that are alike."""
    first = trees[0]
    if isinstance(first, dict):
        return {key: map_arrays(function, *(tree[key] for tree in trees)) for key in first}
    if isinstance(first, tuple):
        return tuple(map_arrays(function, *parts) for parts in zip(*trees, strict=True))
    return function(*trees)


def with_rows(observations: Any, columns: ndarray, rows: Any) -> Any:
    """Return a copy of observations (n, ...) with rows (k, ...) in the k columns (n,) bool."""

    def replace(array: ndarray, own: ndarray) -> ndarray:
        array = array.copy()
        array[columns] = own
        return array

    return map_arrays(replace, observations, rows)


def to_arrays(observations: Any, space: Space[Any], num_rows: int) -> Any:
    """Return observations as numpy arrays (num_rows, ...), nested as space is.

    Parts that hold no numbers, such as texts, become arrays of objects. Raises InvalidEnvOutput
    for another structure or number of rows."""
    if isinstance(space, spaces.Dict):
        if not hasattr(observations, "keys") or {*observations.keys()} != {*space.spaces}:
            raise malformed(observations, num_rows, space)
        return {
            key: to_arrays(observations[key], part, num_rows) for key, part in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        if not isinstance(observations, (tuple, list)) or len(observations) != len(space):
            raise malformed(observations, num_rows, space)
        parts = zip(observations, space, strict=True)
        return tuple(to_arrays(part, own, num_rows) for part, own in parts)
    if holds_numbers(space):
        array = to_numpy(observations)
    else:
        array = np.empty(len(observations), object)
        for i, one in enumerate(observations):
            array[i] = one
    if array.shape[:1] != (num_rows,):
        raise malformed(observations, num_rows, space)
    return array


def malformed(observations: Any, num_rows: int, space: Space[Any]) -> InvalidEnvOutput:
    """Return the error that observations are no num_rows of a space."""
    return InvalidEnvOutput(
        f"its observations are {describe_value(observations)}, not {num_rows} of {space}"
    )


def to_numpy(value: Any) -> ndarray:
    """Return an array of any library as one of numpy, without a copy where they share memory."""
    if hasattr(value, "detach"):  # torch, on any device
        value = value.detach().cpu()
    return np.asarray(value)


def find_device(observations: Any) -> "torch.device | None":
    """Return the device of nested observations if they are torch tensors, else None."""
    if isinstance(observations, (tuple, list)):
        observations = dict(enumerate(observations))
    if hasattr(observations, "keys"):
        devices = [find_device(part) for part in observations.values()]
        return next((device for device in devices if device is not None), None)
    return observations.device if hasattr(observations, "detach") else None
