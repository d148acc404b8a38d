"""The network of sets of entities."""

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

from ppo.envs.observations import shown_of
from ppo.extras.sets.flags import mask_of, set_names
from ppo.models.actor_critic import Trunk
from ppo.models.distributions import orthogonal
from ppo.models.errors import ModelMismatch
from ppo.models.mlp import layer_sizes
from ppo.models.noise import MASKED_LOGIT
from ppo.models.observation_parts import parts_of, split

if TYPE_CHECKING:
    from ppo.config.config import Config

NUM_HEADS = 4  # of the attention, each of which pools its share of an entity's features


class SetTrunk(Trunk):
    """Features of sets of entities that do not depend on their order.

    An encoder reads each entity beside all other parts of the observation; attention pools what it
    makes of those that are there, as a weighted mean whose weights depend on them (Ilse et al.
    2018, "Attention-based Deep Multiple Instance Learning", eq. 7); a layer reads the pools and
    the other parts. size: units of each layer, as layer_sizes takes it. Raises ModelMismatch if the
    observations have no set of --set_keys, or one whose mask has another size, and for a number of
    features that the heads do not divide.
    """

    def __init__(self, observation_space: Box, config: "Config", size: int | str) -> None:
        super().__init__()
        self.space = observation_space
        parts = parts_of(observation_space)
        self.sets = {name: _set_shape(observation_space, name) for name in set_names(config)}
        self.masks = {name: _mask(observation_space, name, n) for name, (n, _) in self.sets.items()}
        self.others = [x for x in parts if x not in self.sets and x not in self.masks.values()]
        num_others = sum(parts[name].shape[0] for name in self.others)
        sizes = layer_sizes(size, config.num_layers)
        self.num_features = width = sizes[-1]
        if width % NUM_HEADS:
            raise ModelMismatch(
                f"--model=set pools features by {NUM_HEADS} heads: give a last layer of a multiple "
                f"of {NUM_HEADS} units, not {width}"
            )
        self.encoders = nn.ModuleList()
        for _, num_numbers in self.sets.values():
            layers: list[nn.Module] = []
            for num_inputs, units in pairwise([num_numbers + num_others, *sizes]):
                layers += [orthogonal(nn.Linear(num_inputs, units), math.sqrt(2)), nn.ReLU()]
            self.encoders.append(nn.Sequential(*layers))
        self.scores = nn.ModuleList(nn.Linear(width, NUM_HEADS) for _ in self.sets)
        num_inputs = len(self.sets) * width + num_others
        self.merge = orthogonal(nn.Linear(num_inputs, width), math.sqrt(2))

    def forward(self, observations: Tensor | dict[str, Tensor]) -> Tensor:
        """Return features (B, num_features) of observations (B, *observation)."""
        parts = {name: x.flatten(1).float() for name, x in split(self.space, observations).items()}
        features = [parts[name] for name in self.others]
        others = torch.cat(features, 1).unsqueeze(1) if features else None
        for (name, shape), encode, score in zip(
            self.sets.items(), self.encoders, self.scores, strict=True
        ):
            entities = parts[name].unflatten(1, shape)
            if others is not None:
                entities = torch.cat([entities, others.expand(-1, shape[0], -1)], 2)
            encoded = encode(entities)  # (B, n, F)
            weights = score(encoded)  # (B, n, heads)
            mask = self.masks[name]
            if mask is None:
                weights = weights.softmax(1)
            else:
                is_there = parts[mask].unsqueeze(2)
                weights = weights.masked_fill(is_there < 0.5, MASKED_LOGIT).softmax(1)
                weights = weights * is_there  # of an empty set: 0
            by_head = encoded.unflatten(2, (NUM_HEADS, -1))
            features.append((weights.unsqueeze(3) * by_head).sum(1).flatten(1))
        return self.merge(torch.cat(features, 1)).relu()


def _set_shape(space: Box, name: str) -> tuple[int, int]:
    """Return the shape (n, k) of a set. Raises ModelMismatch if there is none of this name."""
    shown = shown_of(space)
    shape: Any = (shown[name].space.shape or ()) if name in shown else ()
    if len(shape) != 2 or math.prod(shape) != math.prod(parts_of(space)[name].shape):
        raise ModelMismatch(
            f"--model=set reads sets of entities, like Dict({name}=Box(-1, 1, (n, k))), and the "
            f"parts of these observations are {', '.join(parts_of(space))}: name those of shape "
            "(n, k) by --set_keys, or give another model"
        )
    return shape


def _mask(space: Box, name: str, size: int) -> str | None:
    """Return the name of a set's mask, None without one. Raises ModelMismatch for one that has not
    a number for each of the set's entities."""
    mask = mask_of(name, parts_of(space))
    found = shown_of(space)[mask].space if mask else None
    if found is not None and found.shape != (size,):
        raise ModelMismatch(
            f"--model=set: {mask} is {found}, and {name} has room for {size} entities: "
            f"give it a mask of its own, {name}_mask=MultiBinary({size})"
        )
    return mask
