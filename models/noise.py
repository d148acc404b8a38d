"""What makes actions random, drawn for a whole rollout of one environment."""

import math

import numpy as np


def draw_gumbel(generator: np.random.Generator, num_steps: int, size: int) -> np.ndarray:
    """Standard Gumbel (num_steps, size)."""
    exponential = generator.standard_exponential((num_steps, size), dtype=np.float32)
    return -np.log(np.maximum(exponential, np.finfo(np.float32).tiny))


def draw_normal(
    generator: np.random.Generator, num_steps: int, size: int, every: int = 1
) -> np.ndarray:
    """Standard normal (num_steps, size), which stays for every so many steps; for all of them if that is below 1."""
    every = num_steps if every < 1 else every
    draws = generator.standard_normal((math.ceil(num_steps / every), size), dtype=np.float32)
    return draws if every == 1 else np.repeat(draws, every, axis=0)[:num_steps]
