"""Where the time of an iteration goes, and the least that it could take.

What benchmarks know of the trainer's internals is here.
"""

import itertools
import math
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from statistics import median
from timeit import repeat
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.parts.workloads import PHASES
from ppo.config.config import Config

# Places in an observation where it is applied, numbers that it reads there, and that it writes.
Layer = tuple[int, int, int]
NATURE: list[Layer] = [(20 * 20, 8 * 8 * 4, 32), (9 * 9, 4 * 4 * 32, 64), (7 * 7, 3 * 3 * 64, 64)]


def explain(config: Config, runs: list[harness.Result]) -> harness.Result:
    """Share out the seconds of an iteration, and compare it with the least that it could take."""
    iteration = config.rollout_size / median(run["steps_per_second"] for run in runs)
    collecting, learning = (median(run[phase] for run in runs) for phase in PHASES)
    parts = harness.in_fresh_process(measure_worker, config)
    parts["waiting"] = collecting - sum(parts.values())
    parts["learning"] = learning
    return {
        "shares": {part: seconds / iteration for part, seconds in parts.items()},
        "limit": limit(config) / iteration,
    }


def limit(config: Config) -> float:
    """Compute the seconds that an iteration must take here.

    Strictly on-policy, arithmetic cannot begin before the environments have been stepped.
    """
    from ppo.config.settings import settings_of

    settings = settings_of(config)
    config, spaces = settings.config, settings.spaces
    num_actions = getattr(spaces.actions, "n", None) or math.prod(spaces.actions.shape)
    policy, value = layers_of(config, math.prod(spaces.observations.shape), int(num_actions))
    acting, learning = passes(config, policy, value)
    cores = harness.num_cores()
    threads = cores if config.model == "cnn" else 1
    busy_cores = min(cores, config.num_envs)  # while environments are stepped and act
    _, inputs, outputs = max([*policy, *value], key=lambda layer: layer[1] * layer[2])
    rows = config.rollout_size // config.num_minibatches
    matrices = (rows, inputs, outputs, config.precision, threads)
    per_second = harness.in_fresh_process(matrix_speed, *matrices)
    sides = num_sides(config, rows * operations([*policy, *value]) // 2)
    seconds = acting * threads / busy_cores + learning / min(cores, sides)
    return config.rollout_size * (seconds / per_second + 1 / environment_speed(config, busy_cores))


def layers_of(config: Config, inputs: int, actions: int) -> tuple[list[Layer], list[Layer]]:
    """List the layers of the policy, and those that the value adds to them."""
    size = int(config.hidden_size)
    if config.model == "cnn":
        return [*NATURE, (1, 7 * 7 * 64, size), (1, size, actions)], [(1, size, 1)]
    hidden = [(1, inputs, size), (1, size, size)]
    return [*hidden, (1, size, actions)], [*hidden, (1, size, 1)]


def operations(layers: list[Layer]) -> int:
    """Count multiplications and additions of a forward pass of one observation."""
    return 2 * sum(map(math.prod, layers))


def passes(config: Config, policy: list[Layer], value: list[Layer]) -> tuple[int, int]:
    """Count the operations for each step: of acting, and of the learner.

    It computes log-probabilities and values once, of a CNN from features that workers have
    recorded. A backward pass is two forward ones: for the gradient of the weights and for that of
    the inputs, which no first layer needs.
    """
    forward = once = operations([*policy, *value])
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
        ones = partial(torch.ones, dtype=getattr(torch, precision))
        multiply = partial(torch.mm, ones((rows, inputs)), ones((inputs, outputs)))
    number = math.ceil(0.2 / min(repeat(multiply, number=3)) * 3)
    return operations([(rows, inputs, outputs)]) * number / min(repeat(multiply, number=number))


def environment_speed(config: Config, cores: int) -> float:
    """Measure steps per second of the environment and nothing else, on all cores at once."""
    context = get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(cores, context) as processes:
        barriers = [manager.Barrier(cores)] * cores
        return sum(processes.map(step_at_random, [config] * cores, barriers))


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


class Timed:
    """Wrap a callable and add up the seconds that its calls take."""

    def __init__(self, wrapped: Any, seconds: dict[str, float], part: str) -> None:
        self.wrapped = wrapped
        self.seconds = seconds
        self.part = part

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        result = self.wrapped(*arguments, **options)
        self.seconds[self.part] += time.perf_counter() - start
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)


def measure_worker(config: Config, budget: float = 5.0) -> dict[str, float]:
    """Measure the seconds of a rollout that a worker spends in its environments and in the policy.

    Returns medians over rollouts of one worker's share of the environments, in this process alone,
    with an update in between: as many as the budget of seconds allows, without the first, and at
    least one.
    """
    import torch

    from ppo.components import Components
    from ppo.config.settings import settings_of
    from ppo.envs.pool import WorkerPool

    settings = settings_of(replace(config, total_steps=10**9))
    config = settings.config
    share = math.ceil(config.num_envs / max(1, int(config.num_workers)))
    parts = Components(settings.with_changes({"num_envs": share, "num_workers": 0}))
    threads = torch.get_num_threads()
    seconds = {"environment": 0.0, "inference": 0.0}
    found: list[dict[str, float]] = []
    with WorkerPool(parts.make_worker, share, 0) as workers:
        worker = workers.workers[0].worker
        for env in worker.envs:
            env.step = Timed(env.step, seconds, "environment")
            env.reset = Timed(env.reset, seconds, "environment")
        worker.sampler.begin = Timed(worker.sampler.begin, seconds, "inference")
        worker.sampler = Timed(worker.sampler, seconds, "inference")
        start = time.perf_counter()
        while len(found) < 2 or time.perf_counter() - start < budget:
            seconds.update(environment=0.0, inference=0.0)
            torch.set_num_threads(1)  # as in a worker
            info = workers.collect(len(found) + 1)
            torch.set_num_threads(threads)
            found.append({**seconds})
            rollout = parts.finish_collect(len(found), info)
            batch = parts.make_batch(rollout)
            parts.update_statistics(rollout)
            parts.learner.update(batch, parts.iteration)
            parts.publish_weights()
    return {part: median(rollout[part] for rollout in found[1:]) for part in seconds}


def num_sides(config: Config, work: int) -> int:
    """Return the number of threads, each with a network, that learn from a minibatch of an mlp.

    work: the minibatch's rows times the weights of both networks."""
    from ppo.extras.fast.backend import MIN_WORK_FOR_THREADS

    has_two = config.model == "mlp" and not config.share_trunk and work >= MIN_WORK_FOR_THREADS
    return 2 if has_two else 1
