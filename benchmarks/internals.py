"""All that benchmarks know of the trainer's internals; who changes those adapts this file only."""

import math
import time
from dataclasses import replace
from statistics import median
from typing import Any

from ppo.config.config import Config


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
