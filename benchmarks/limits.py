"""Where an iteration's time goes, and how fast this machine could be: what the environment and the arithmetic take."""

import itertools
import math
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from statistics import median
from timeit import repeat
from typing import Any

import numpy as np

from benchmarks.common import in_fresh_process
from ppo.config.config import Config

Layer = tuple[
    int, int, int
]  # places in an observation where it is applied, numbers that it reads there, and writes
NATURE: list[Layer] = [(20 * 20, 8 * 8 * 4, 32), (9 * 9, 4 * 4 * 32, 64), (7 * 7, 3 * 3 * 64, 64)]


class Timed:
    """What it wraps, but the seconds that calls of it take are added up."""

    def __init__(self, wrapped: Any, seconds: dict[str, float], part: str) -> None:
        self.wrapped, self.seconds, self.part = wrapped, seconds, part

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        result = self.wrapped(*arguments, **options)
        self.seconds[self.part] += time.perf_counter() - start
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)


def seconds_of_a_worker(config: Config, budget: float = 5.0) -> dict[str, float]:
    """Seconds of a rollout that a worker spends in its environments and in the policy: medians over rollouts of its
    share of the environments, in this process alone, learned from in between, as many as the budget of seconds allows,
    but the first and at least one more."""
    import torch

    from ppo.config.resolve import resolve
    from ppo.envs.pool import WorkerPool
    from ppo.trainer import Training

    config, spaces = resolve(replace(config, total_steps=10**9))
    share = math.ceil(config.num_envs / max(1, int(config.num_workers)))
    training = Training(replace(config, num_envs=share, num_workers=0), spaces)
    threads, seconds, found = torch.get_num_threads(), {"environment": 0.0, "inference": 0.0}, []
    with WorkerPool(training.make_worker, share, 0) as workers:
        worker = workers.workers[0].worker
        for env in worker.environments.envs:
            env.step, env.reset = (
                Timed(call, seconds, "environment") for call in (env.step, env.reset)
            )
        worker.sampler.begin = Timed(worker.sampler.begin, seconds, "inference")
        worker.sampler = Timed(worker.sampler, seconds, "inference")
        start = time.perf_counter()
        while len(found) < 2 or time.perf_counter() - start < budget:
            seconds.update(environment=0.0, inference=0.0)
            torch.set_num_threads(1)  # as in a worker
            report = workers.collect(len(found) + 1)
            torch.set_num_threads(threads)
            found.append({**seconds})
            training.learn(report)
    return {part: median(each[part] for each in found[1:]) for part in seconds}


def shares(
    config: Config, iteration: float, collecting: float, learning: float
) -> dict[str, float]:
    """What part of an iteration goes where. Given are the seconds that one takes, and those of its phases."""
    parts = in_fresh_process(seconds_of_a_worker, config)
    waiting = collecting - sum(parts.values())
    seconds = {**parts, "communication and waiting": waiting, "learning": learning}
    seconds["logging and saving"] = iteration - collecting - learning
    return {part: each / iteration for part, each in seconds.items()}


def step_at_random(config: Config, barrier: Any, budget: float = 2.0) -> float:
    """Steps per second, resets included, of an environment with a random policy, in this process."""
    from ppo.envs.make import make_env
    from ppo.config.resolve import preprocessing_of

    env = make_env(config.env_name, preprocessing_of(config))
    env.action_space.seed(0)
    actions = itertools.cycle([env.action_space.sample() for _ in range(1000)])
    env.reset(seed=0)
    barrier.wait()
    start = time.perf_counter()
    for step in itertools.count(1):
        _, _, terminated, truncated, _ = env.step(next(actions))
        if terminated or truncated:
            env.reset(seed=step)
        if (seconds := time.perf_counter() - start) > budget:
            return step / seconds
    raise AssertionError


def environment_speed(config: Config, cores: int) -> float:
    """Steps per second of the environment and nothing else, on all cores at once."""
    context = get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(cores, context) as processes:
        return sum(
            processes.map(step_at_random, [config] * cores, [manager.Barrier(cores)] * cores)
        )


def operations(layers: list[Layer]) -> int:
    """Multiplications and additions of a forward pass of one observation."""
    return 2 * sum(map(math.prod, layers))


def layers_of(config: Config, inputs: int, actions: int) -> tuple[list[Layer], list[Layer]]:
    """The layers of the policy, and those that the value adds to them."""
    size = int(config.hidden_size)
    if config.model == "cnn":
        return [*NATURE, (1, 7 * 7 * 64, size), (1, size, actions)], [(1, size, 1)]
    hidden = [(1, inputs, size), (1, size, size)]
    return [*hidden, (1, size, actions)], [*hidden, (1, size, 1)]


def passes(config: Config, policy: list[Layer], value: list[Layer]) -> tuple[int, int]:
    """Operations for each step: of acting, and of the learner. It computes log-probabilities and values once, of a CNN
    from features that workers have recorded. A backward pass is two forward ones: for the gradient of the weights and
    for that of the inputs, which no first layer needs."""
    is_cnn = config.model == "cnn"
    forward, first = (
        operations([*policy, *value]),
        operations([policy[0]] if is_cnn else [policy[0], value[0]]),
    )
    once = operations([policy[-1], value[-1]]) if is_cnn else forward
    return operations(policy), once + config.num_epochs * (3 * forward - first)


def matrix_speed(rows: int, inputs: int, outputs: int, precision: str, threads: int) -> float:
    """Operations per second of products of matrices in this process: the best of five times 0.2 seconds; by numpy
    for float32 in one thread, else by torch."""
    multiply: Callable[[], Any]
    if threads == 1 and precision == "float32":
        left, right = np.ones((rows, inputs), np.float32), np.ones((inputs, outputs), np.float32)
        result = left @ right
        multiply = lambda: np.matmul(left, right, out=result)  # noqa: E731
    else:
        import torch

        torch.set_num_threads(threads)
        a, b = (
            torch.ones(shape, dtype=getattr(torch, precision))
            for shape in ((rows, inputs), (inputs, outputs))
        )
        multiply = lambda: torch.mm(a, b)  # noqa: E731
    number = math.ceil(0.2 / min(repeat(multiply, number=3)) * 3)
    return operations([(rows, inputs, outputs)]) * number / min(repeat(multiply, number=number))


def limit(config: Config, cores: int, steps_per_second: float) -> dict[str, float]:
    """The seconds that an iteration must take here, and how near to them the measured ones are: strictly on-policy,
    arithmetic cannot begin before the environments have been stepped."""
    from ppo.config.resolve import resolve

    config, spaces = resolve(config)
    actions = getattr(spaces.actions, "n", None) or math.prod(spaces.actions.shape)
    policy, value = layers_of(config, math.prod(spaces.observations.shape), int(actions))
    acting, learning = passes(config, policy, value)
    threads = cores if config.model == "cnn" else 1
    _, inputs, outputs = max([*policy, *value], key=lambda layer: layer[1] * layer[2])
    rows = config.rollout_size // config.num_minibatches
    found = {
        "environment_steps_per_second": environment_speed(config, cores),
        "operations_per_second": in_fresh_process(
            matrix_speed, rows, inputs, outputs, config.precision, threads
        ),
        "operations": config.rollout_size * (acting + learning),
    }
    acting_seconds = (
        acting * threads / cores / found["operations_per_second"]
    )  # workers act on all cores
    arithmetic = config.rollout_size * (acting_seconds + learning / found["operations_per_second"])
    seconds = config.rollout_size / found["environment_steps_per_second"] + arithmetic
    measured = config.rollout_size / steps_per_second
    about = {"seconds_arithmetic": arithmetic, "seconds": seconds, "measured_seconds": measured}
    return {**found, **about, "distance": seconds / measured}
