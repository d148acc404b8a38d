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
from ppo.models import HIDDEN_SIZES, make_trunk
from ppo.models.actor_critic import FeedForward, Trunk


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
        is_own = is_path(name_of(config.model))
        if is_own or not isinstance(model, FeedForward):
            raise ConfigError("--policy_keys and --value_keys only work with built-in networks")
        is_recurrent = bool(model.state_size)
        if is_recurrent and self.value_keys not in (None, self.policy_keys):
            raise ConfigError(
                f"--value_keys={self.value_keys}: leave it out, since a recurrent network has one "
                "trunk, which reads --policy_keys"
            )
        size = config.hidden_size
        if is_recurrent:
            size = HIDDEN_SIZES["cnn" if spaces.layout.images else "mlp"]
        is_same = is_recurrent or self.value_keys == self.policy_keys
        is_shared = is_same and config.share_trunk
        config_of_model = replace(config, share_trunk=is_shared)
        flags = iter(["policy_keys", "value_keys"])

        def make_next() -> Trunk:
            flag = next(flags)
            keys = getattr(self, flag)
            return some_trunk(spaces, size, flag, keys)

        model.num_shared_features = 0
        seed = integer_seed(config.seed, Stream.MODEL)
        torch.default_generator.manual_seed(seed)
        type(model).__init__(model, make_next, spaces.with_config(config_of_model))


def some_trunk(
    spaces: Spaces,
    size: Any,
    flag: str,
    keys: str | None,
) -> Trunk:
    """Make a trunk for the parts that keys name: leaves, or all within a Dict; None: for all."""
    layout = spaces.layout
    parts = [*layout.vectors, *layout.images]
    known = {part.name: part.space for part in parts}
    if keys is None:
        return make_trunk(spaces, size)
    chosen: dict[str, Any] = {}
    for key in keys.split(","):
        found = {}
        for name, space in known.items():
            is_within = name.startswith(f"{key}.")
            if name == key or is_within:
                found[name] = space
        if not found:
            raise ConfigError(f"--{flag}={key} is not an observed part{suggest(key, known)}")
        chosen |= found
    if len(chosen) == len(known):
        return make_trunk(spaces, size)
    observes = Dict([*chosen.items()])
    some = replace(spaces, observations=observes)
    if layout.images and not some.layout.images:
        size = HIDDEN_SIZES["mlp"]
        config = replace(spaces.config, frame_stack=1)  # that of images
        some = some.with_config(config)
    trunk = make_trunk(some, size)
    return SomeParts(layout, some.layout, trunk)


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
            shape = (self.layout.num_vectors, -1)
            rows = observations.unflatten(1, shape)
            places = self.layout.columns.items()
            parts = {name: rows[..., columns] for name, columns in places}
        if len(self.own.tables) > 1:
            return self.trunk(parts)
        if self.own.images:
            image = self.own.images[0]
            return self.trunk(parts[image.name])
        vectors = [parts[part.name] for part in self.own.vectors]
        numbers = torch.cat(vectors, -1)
        return self.trunk(numbers)
