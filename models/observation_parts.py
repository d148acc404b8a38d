"""Split flattened observations into their named parts."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gymnasium.spaces import Box
    from torch import Tensor  # heavy

Boxes = dict[str, Any]  # by the names of their parts


def parts_of(space: "Box") -> Boxes:
    """Return the Boxes of all parts, by name, in the order in which observations hold them."""
    return getattr(space, "parts", {"observation": space})


def images_of(space: "Box") -> Boxes:
    """Return the Boxes (H, W, C) uint8 of the parts that are images, by name."""
    parts = parts_of(space).items()
    return {name: box for name, box in parts if box.dtype == "uint8" and len(box.shape) == 3}


def vectors_of(space: "Box") -> Boxes:
    """Return the Boxes of the other parts, by name."""
    return {name: box for name, box in parts_of(space).items() if name not in images_of(space)}


def chosen_parts(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return the known parts that names choose: "arm" chooses arm, or all parts within it, such as
    arm.camera."""
    return [part for part in known if any(f"{part}.".startswith(f"{name}.") for name in names)]


def is_packed(space: "Box") -> bool:
    """Return whether observations are packed rows of bytes: an image and other parts."""
    return len(parts_of(space)) > 1 and bool(images_of(space))


def split(space: Any, observations: "Tensor | dict[str, Tensor]") -> "dict[str, Tensor]":
    """Return the parts (B, *part) of observations (B, *observation), by name; vectors of packed
    rows as float32. A dict of parts is returned unchanged: exported models are called with one."""
    import torch  # here, since models are chosen without it

    if isinstance(observations, dict):
        return observations
    parts = parts_of(space)
    if len(parts) == 1:
        return dict.fromkeys(parts, observations)
    found = {}
    for name, box in parts.items():
        columns = observations[:, space.places[name]]
        if box.dtype != space.dtype:
            columns = columns.view(getattr(torch, str(box.dtype))).float()
        found[name] = columns.unflatten(1, box.shape)
    return found
