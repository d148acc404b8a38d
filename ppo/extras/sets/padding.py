"""Sequence spaces as sets: --wrapper="ppo.extras.sets.padding:PadSequences(size=8)"."""

from typing import Any

import numpy as np
from gymnasium import Env, ObservationWrapper, spaces


class PadSequences(ObservationWrapper):
    """Pad each Sequence of Boxes (k,) in a Dict observation to (size, k) with zeros, and add
    KEY_mask, 1 where an entity is there, for --model=set.

    Raises ValueError for a space without such Sequences, for one that has a KEY_mask already, and
    for an observation with more than size entities."""

    def __init__(self, env: Env, size: int) -> None:
        super().__init__(env)
        given = env.observation_space
        if not isinstance(given, spaces.Dict):
            raise ValueError(f"PadSequences pads Sequences in a Dict, and observations are {given}")
        self.size = size
        self.widths: dict[str, int] = {}
        found: dict[str, Any] = {**given.spaces}
        for key, space in given.items():
            one = getattr(space, "feature_space", None)
            if isinstance(one, spaces.Box) and len(one.shape) == 1:
                if f"{key}_mask" in given.spaces:
                    raise ValueError(f"PadSequences makes {key}_mask, and there is one: rename it")
                (self.widths[key],) = one.shape
                bounds = np.minimum(one.low, 0), np.maximum(one.high, 0)
                low, high = (np.tile(bound, (size, 1)).astype(np.float32) for bound in bounds)
                found[key] = spaces.Box(low, high)
                found[f"{key}_mask"] = spaces.MultiBinary(size)
        if not self.widths:
            raise ValueError(f"PadSequences found no Sequence of vectors in {given}")
        self.observation_space = spaces.Dict(found)

    def observation(self, observation: dict[str, Any]) -> dict[str, Any]:
        padded = dict(observation)
        for key, width in self.widths.items():
            entities = np.asarray(observation[key], np.float32).reshape(-1, width)
            if len(entities) > self.size:
                raise ValueError(
                    f"{key} has {len(entities)} entities, more than the {self.size} of "
                    "PadSequences: give a larger size"
                )
            padded[key] = np.zeros((self.size, width), np.float32)
            padded[key][: len(entities)] = entities
            padded[f"{key}_mask"] = (np.arange(self.size) < len(entities)).astype(np.int8)
        return padded
