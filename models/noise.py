"""Noise for sampling actions, and constants shared by torch and numpy."""

import math
from collections.abc import Callable

import numpy as np
from numpy import ndarray
from numpy.random import Generator

DrawNoise = Callable[[Generator, int], ndarray]  # of a policy head: (num_steps, *noise)
MASKED_LOGIT = -1e8  # a finite logit whose probability is 0
TINY = np.finfo(np.float32).tiny
HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
EMPTY = np.zeros(0, np.float32)  # where there are no masks, states or features


def draw_gumbel(generator: Generator, num_steps: int, size: int) -> ndarray:
    """Draw standard Gumbel noise (num_steps, size) for a rollout of one environment."""
    exponential = generator.standard_exponential((num_steps, size), np.float32)
    return -np.log(np.maximum(exponential, TINY))


def draw_normal(generator: Generator, num_steps: int, size: int, hold: int) -> ndarray:
    """Draw standard normal noise (num_steps, size), each held for hold steps, or for the whole
    rollout if hold is below 1."""
    if hold < 1:
        hold = num_steps
    draws = generator.standard_normal((math.ceil(num_steps / hold), size), np.float32)
    return np.repeat(draws, hold, 0)[:num_steps]
