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

from ppo.envs.observations import some_parts
from ppo.extras.nested.flags import NestedFlags
from ppo.extras.nested.keys import chosen
from ppo.models import MODELS
from ppo.models.actor_critic import Trunk
from ppo.models.mlp import VectorTrunk
from ppo.models.observation_parts import images_of, is_packed, parts_of, split

if TYPE_CHECKING:
    from ppo.config.config import Config

Make = Callable[[Box], Trunk]


class SomeParts(Trunk):
    """A trunk on some parts of flattened observations. whole: the space of these; some: that of the
    parts, which the trunk reads."""

    def __init__(self, whole: Box, some: Box, trunk: Trunk) -> None:
        super().__init__()
        self.whole: Any = whole
        self.space: Any = some
        self.trunk = trunk
        self.parts = tuple(x for x in parts_of(whole) if x in parts_of(some))
        self.num_features = trunk.num_features

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
    some = some_parts(space, names)
    if MODELS[config.model].reads == "images" and not images_of(some):
        size: Any = getattr(config, f"{network}_layers") or MODELS["mlp"].hidden_size
        return SomeParts(space, some, VectorTrunk(some, config, size))
    trunk: Any = make(some)
    if not trunk.state_size:
        return SomeParts(space, some, trunk)
    trunk.encoder = SomeParts(space, some, trunk.encoder)
    trunk.parts = trunk.encoder.parts
    return trunk
