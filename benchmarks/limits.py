"""Where an iteration's time goes, and how fast this machine could be at best."""

import itertools
import math
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from timeit import repeat
from typing import Any

import numpy as np

from benchmarks.harness import in_fresh_process
from benchmarks.internals import measure_worker, num_sides
from ppo.config.config import Config

# Places in an observation where it is applied, numbers that it reads there, and that it writes.
Layer = tuple[int, int, int]
NATURE: list[Layer] = [(20 * 20, 8 * 8 * 4, 32), (9 * 9, 4 * 4 * 32, 64), (7 * 7, 3 * 3 * 64, 64)]


def shares(
    config: Config, iteration: float, collecting: float, learning: float
) -> dict[str, float]:
    """Share out the seconds of an iteration, of which those of its phases are given."""
    parts = in_fresh_process(measure_worker, config)
    waiting = collecting - sum(parts.values())
    seconds = {**parts, "communication and waiting": waiting, "learning": learning}
    seconds["logging and saving"] = iteration - collecting - learning
    return {part: each / iteration for part, each in seconds.items()}


def step_at_random(config: Config, barrier: Any, budget: float = 2.0) -> float:
    """Measure steps per second, resets included, with a random policy, in this process."""
    from ppo.envs.make import make_env

    env = make_env(config)
    env.action_space.seed(0)
    actions = itertools.cycle([env.action_space.sample() for _ in range(1000)])
    env.reset(seed=0)
    barrier.wait()
    start = time.perf_counter()
    for step in itertools.count(1):
        _, _, terminated, truncated, _ = env.step(next(actions))
        if terminated or truncated:
            env.reset(seed=step)
        seconds = time.perf_counter() - start
        if seconds > budget:
            return step / seconds
    raise AssertionError


def environment_speed(config: Config, cores: int) -> float:
    """Measure steps per second of the environment and nothing else, on all cores at once."""
    context = get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(cores, context) as processes:
        barriers = [manager.Barrier(cores)] * cores
        return sum(processes.map(step_at_random, [config] * cores, barriers))


def operations(layers: list[Layer]) -> int:
    """Count multiplications and additions of a forward pass of one observation."""
    return 2 * sum(map(math.prod, layers))


def layers_of(config: Config, inputs: int, actions: int) -> tuple[list[Layer], list[Layer]]:
    """List the layers of the policy, and those that the value adds to them."""
    size = int(config.hidden_size)
    if config.model == "cnn":
        return [*NATURE, (1, 7 * 7 * 64, size), (1, size, actions)], [(1, size, 1)]
    hidden = [(1, inputs, size), (1, size, size)]
    return [*hidden, (1, size, actions)], [*hidden, (1, size, 1)]


def passes(config: Config, policy: list[Layer], value: list[Layer]) -> tuple[int, int]:
    """Count the operations for each step: of acting, and of the learner.

    It computes log-probabilities and values once, of a CNN from features that workers have
    recorded. A backward pass is two forward ones: for the gradient of the weights and for that of
    the inputs, which no first layer needs.
    """
    forward = operations([*policy, *value])
    once = forward
    first_layers = [policy[0], value[0]]
    if config.model == "cnn":
        once = operations([policy[-1], value[-1]])
        first_layers = [policy[0]]
    learning = once + config.num_epochs * (3 * forward - operations(first_layers))
    return operations(policy), learning


def matrix_speed(rows: int, inputs: int, outputs: int, precision: str, threads: int) -> float:
    """Measure operations per second of products of matrices in this process.

    The best of five times 0.2 seconds; by numpy for float32 in one thread, else by torch.
    """
    multiply: Callable[[], Any]
    if threads == 1 and precision == "float32":
        left = np.ones((rows, inputs), np.float32)
        right = np.ones((inputs, outputs), np.float32)
        multiply = partial(np.matmul, left, right, out=left @ right)
    else:
        import torch

        torch.set_num_threads(threads)
        dtype = getattr(torch, precision)
        left_tensor = torch.ones((rows, inputs), dtype=dtype)
        multiply = partial(torch.mm, left_tensor, torch.ones((inputs, outputs), dtype=dtype))
    number = math.ceil(0.2 / min(repeat(multiply, number=3)) * 3)
    return operations([(rows, inputs, outputs)]) * number / min(repeat(multiply, number=number))


def limit(config: Config, cores: int, steps_per_second: float) -> dict[str, float]:
    """Compute the seconds that an iteration must take here, and how near the measured ones are.

    Strictly on-policy, arithmetic cannot begin before the environments have been stepped.
    """
    from ppo.config.resolve import resolve

    config, spaces = resolve(config)
    actions = getattr(spaces.actions, "n", None) or math.prod(spaces.actions.shape)
    policy, value = layers_of(config, math.prod(spaces.observations.shape), int(actions))
    acting, learning = passes(config, policy, value)
    threads = cores if config.model == "cnn" else 1
    busy_cores = min(cores, config.num_envs)  # while environments are stepped and act
    _, inputs, outputs = max([*policy, *value], key=lambda layer: layer[1] * layer[2])
    rows = config.rollout_size // config.num_minibatches
    sizes = (rows, inputs, outputs)
    environment_steps = environment_speed(config, busy_cores)
    operations_per_second = in_fresh_process(matrix_speed, *sizes, config.precision, threads)
    acting_seconds = acting * threads / busy_cores / operations_per_second
    sides = num_sides(config, rows * operations([*policy, *value]) // 2)
    learning_seconds = learning / operations_per_second / min(cores, sides)
    arithmetic = config.rollout_size * (acting_seconds + learning_seconds)
    seconds = config.rollout_size / environment_steps + arithmetic
    measured = config.rollout_size / steps_per_second
    return {
        "environment_steps_per_second": environment_steps,
        "operations_per_second": operations_per_second,
        "operations": config.rollout_size * (acting + learning),
        "seconds_arithmetic": arithmetic,
        "seconds": seconds,
        "measured_seconds": measured,
        "distance": seconds / measured,
    }
