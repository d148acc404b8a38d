"""Let policy and value network read different parts of nested observations: --policy_keys,
--value_keys (Pinto et al. 2017, "Asymmetric Actor Critic for Image-Based Robot Learning")."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from gymnasium.spaces import Dict
from torch import Tensor

from ppo.callbacks import Callback
from ppo.config import name_of
from ppo.envs.make import Spaces
from ppo.envs.observations import Layout
from ppo.envs.seeding import Stream, integer_seed
from ppo.errors import ConfigError, suggest
from ppo.imports import is_path
from ppo.models import HIDDEN_SIZES
from ppo.models.actor_critic import FeedForward, Trunk
from ppo.models.cnn import make_trunk


@dataclass
class Keys(Callback):
    """Raises ConfigError for an unknown part, or a network that cannot choose."""

    policy_keys: str | None = None
    """Parts of a nested observation that the policy reads, such as arm,camera (none: all)."""
    value_keys: str | None = None
    """The same for the value network, which may read what the policy does not (none: all)."""

    def on_model(self, model: Any, spaces: Spaces) -> None:
        """Make the network again, from the same random numbers."""
        config = spaces.config
        if not isinstance(model, FeedForward) or is_path(name_of(config.model)):
            raise ConfigError("--policy_keys and --value_keys are for the built-in networks")
        is_same = self.value_keys == self.policy_keys
        if model.state_size and not (is_same or self.value_keys is None):
            raise ConfigError(
                f"--value_keys={self.value_keys}: leave it out, since a recurrent network has one "
                "trunk, which reads --policy_keys"
            )
        size = config.hidden_size
        if model.state_size:
            size = HIDDEN_SIZES["cnn" if spaces.layout.images else "mlp"]
        keys = [("value_keys", self.value_keys), ("policy_keys", self.policy_keys)]
        is_shared = config.share_trunk and (is_same or bool(model.state_size))
        model.num_shared_features = 0
        torch.default_generator.manual_seed(integer_seed(config.seed, Stream.MODEL))
        type(model).__init__(
            model,
            lambda: some_trunk(spaces, size, *keys.pop()),
            spaces.with_config(replace(config, share_trunk=is_shared)),
        )


def some_trunk(spaces: Spaces, size: Any, flag: str, keys: str | None) -> Trunk:
    """Make a trunk for the parts that keys name: leaves, or all within a Dict. keys: None for
    all."""
    layout = spaces.layout
    spaces_of_parts = {x.name: x.space for x in [*layout.vectors, *layout.images]}
    chosen: dict[str, Any] = {}
    for key in keys.split(",") if keys is not None else []:
        found = {
            name: space
            for name, space in spaces_of_parts.items()
            if name == key or name.startswith(f"{key}.")
        }
        if not found:
            raise ConfigError(f"--{flag}={key} is not a part{suggest(key, spaces_of_parts)}")
        chosen |= found
    if chosen.keys() == spaces_of_parts.keys() or keys is None:
        return make_trunk(spaces, size)
    some = replace(spaces, observations=Dict([*chosen.items()]))
    if layout.images and not some.layout.images:
        size = HIDDEN_SIZES["mlp"]
        some = some.with_config(replace(spaces.config, frame_stack=1))  # that of images
    return SomeParts(layout, some.layout, make_trunk(some, size))


class SomeParts(Trunk):
    """A trunk that reads some parts of observations. layout: of all; own: of these parts."""

    def __init__(self, layout: Layout, own: Layout, trunk: Trunk) -> None:
        super().__init__()
        self.layout = layout
        self.own = own
        self.trunk = trunk
        self.num_features = trunk.num_features

    def forward(self, observations: Any) -> Tensor:
        parts = observations
        if isinstance(observations, Tensor):  # all parts are numbers
            rows = observations.unflatten(1, (self.layout.num_vectors, -1))
            parts = {name: rows[..., columns] for name, columns in self.layout.columns.items()}
        if len(self.own.tables) > 1:
            return self.trunk(parts)
        if self.own.images:
            return self.trunk(parts[self.own.images[0].name])
        numbers = [parts[part.name] for part in self.own.vectors]
        return self.trunk(torch.cat(numbers, -1))
