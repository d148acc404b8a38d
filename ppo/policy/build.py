"""Build what training and playing share: the model and the observation normaliser."""

import math
from copy import copy
from typing import Any

from ppo.envs.first_look import Spaces
from ppo.envs.normalize import NormalizeObservation
from ppo.envs.seeding import Stream, integer_seed
from ppo.models import image_shape, make_model


def new_model(config: Any, spaces: Spaces, to_act: bool = False) -> Any:
    """Make a run's model with its initial weights, without touching torch's random stream.

    to_act: as it computes where the CPU acts, whatever the learner's device is."""
    # Here, for workers import this module even where they act without torch.
    import torch

    from ppo.system.hardware import has_bfloat16

    if to_act and not has_bfloat16("cpu"):
        config = copy(config)
        vars(config).update(precision="float32")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(integer_seed(config.seed, Stream.MODEL))
        return make_model(config, spaces.observations, spaces.actions)


def new_normalizer(config: Any, spaces: Spaces) -> NormalizeObservation:
    """Make a run's initial observation statistics, for all numbers but pixels."""
    pixels = image_shape(spaces.observations) or (0,)
    return NormalizeObservation(
        spaces.observations.shape, config.normalize_observations, math.prod(pixels)
    )
