"""Trunks that read some parts of nested observations."""

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium.spaces import Box
from numpy import ndarray
from torch import Tensor

from ppo.envs.observations import join, shown_of
from ppo.extras.nested.flags import NestedFlags
from ppo.extras.nested.keys import chosen
from ppo.models import MODELS
from ppo.models.actor_critic import Trunk
from ppo.models.mlp import VectorTrunk
from ppo.models.observation_parts import images_of, is_packed, parts_of, split, vectors_of

if TYPE_CHECKING:
    from ppo.config.config import Config

Make = Callable[[Box], Trunk]


class SomeParts(Trunk):
    """A trunk on some parts of flattened observations. make: makes it, for the space of these."""

    def __init__(self, space: Box, names: list[str], make: Make) -> None:
        super().__init__()
        self.parts = tuple(names)
        self.whole: Any = space
        kinds = (vectors_of(space), images_of(space))
        self.space = join(*({x: box for x, box in kind.items() if x in names} for kind in kinds))
        self.space.shown = {name: shown_of(space)[name] for name in names}
        self.trunk = make(self.space)
        self.num_features = self.trunk.num_features

    @property
    def columns(self) -> ndarray | None:
        """The columns that it reads of flattened observations; None where they are packed bytes."""
        if is_packed(self.whole):
            return None
        columns = np.arange(math.prod(self.whole.shape))
        return np.concatenate([columns[self.whole.places[name]] for name in self.space.parts])

    def forward(self, observations: Tensor | dict[str, Tensor]) -> Tensor:
        """Return features (B, num_features) of observations (B, *observation), or of their parts by
        name."""
        parts = split(self.whole, observations)
        parts = {name: parts[name] for name in self.space.parts}
        if is_packed(self.space):
            return self.trunk.forward(parts)
        if images_of(self.space):
            (image,) = parts.values()
            return self.trunk.forward(image)
        return self.trunk.forward(torch.cat([x.flatten(1).float() for x in parts.values()], 1))


def around(config: "Config", network: str, make: Make) -> Make:
    """Return what makes a trunk of the parts that --policy_keys or --value_keys chooses for a
    network, or make if it reads all."""
    flag = f"{network}_keys"
    keys = getattr(NestedFlags.of(config), flag)
    return partial(_make, config, network, keys, make) if keys else make


def _make(config: "Config", network: str, keys: str, make: Make, space: Box) -> Trunk:
    """Make a trunk of some parts: of a network with memory, whose encoder reads them; an mlp's if
    none of them is an image."""
    names = chosen(f"{network}_keys", keys, parts_of(space))
    if len(names) == len(parts_of(space)):
        return make(space)
    has_images = any(name in images_of(space) for name in names)
    if MODELS[config.model].reads == "images" and not has_images:
        size: Any = getattr(config, f"{network}_layers") or MODELS["mlp"].hidden_size
        return SomeParts(space, names, lambda some: VectorTrunk(some, config, size))
    trunk = SomeParts(space, names, make)
    if not trunk.trunk.state_size:
        return trunk
    recurrent: Any = trunk.trunk
    recurrent.encoder = SomeParts(space, names, lambda some: recurrent.encoder)
    recurrent.parts = trunk.parts
    return recurrent
