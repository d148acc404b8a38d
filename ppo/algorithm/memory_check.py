"""Estimate from its settings how much memory and time a run will take."""

import math
from itertools import pairwise

from gymnasium.spaces import flatdim

from ppo.config.config import Config
from ppo.envs.probe import Spaces
from ppo.models.mlp import layer_sizes
from ppo.models.observation_parts import vectors_of
from ppo.system.hardware import check_memory

LARGE_ROLLOUT = 2**31  # bytes of observations
LARGE_NETWORK = 50_000_000  # weights


def check_layers(config: Config, spaces: Spaces) -> None:
    """Raise ConfigError if the layers of an MLP would need more than the machine's memory.

    They are counted before any is made: a system that gives out more memory than it has would kill
    the process as it fills them."""
    num_inputs = sum(math.prod(box.shape) for box in vectors_of(spaces.observations).values())
    num_outputs = flatdim(spaces.actions)
    needed = 0
    for layers, outputs in ((config.policy_layers, num_outputs), (config.value_layers, 1)):
        sizes = layer_sizes(layers or config.hidden_size, config.num_layers)
        widths = pairwise([num_inputs, *sizes, outputs])
        # float32 weights, gradients and Adam's two moments.
        needed += 16 * sum(math.prod(pair) for pair in widths)
    what = f"a network from {num_inputs:,} numbers to {num_outputs:,}"
    check_memory("hidden_size or the number of layers", needed, what)


def describe_size(config: Config, spaces: Spaces, num_weights: int) -> list[str]:
    """Return a warning for the user if a run is very large, as far as its spaces tell."""
    shape = spaces.observations.shape
    num_bytes = math.prod(shape) * spaces.observations.dtype.itemsize * config.rollout_size
    if num_bytes < LARGE_ROLLOUT and num_weights < LARGE_NETWORK:
        return []
    # Forward and backward, and again to evaluate; a core multiplies some 1e10 numbers a second.
    seconds = 8 * num_weights * config.rollout_size * config.num_epochs / 1e10
    return [
        f"this run is large: {num_bytes / 2**30:.1f} GiB of observations in a rollout, "
        f"{num_weights:,} weights, some {seconds:,.0f} s for the update of an iteration on a core"
    ]
