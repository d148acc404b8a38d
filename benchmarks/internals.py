"""All that benchmarks know of the trainer's internals; who changes those adapts this file only.

python -m benchmarks.internals --flags runs main.py without its safeguards, for benchmarks.price;
worker processes, which import the main module, are without them too. benchmarks.limits imports
measure_worker.
"""

import math
import sys
import time
from dataclasses import replace
from statistics import median
from typing import Any

from ppo.config.config import Config


def remove_safeguards() -> None:
    """Take supervision, checks of data and losses, and copies of the state out of the trainer."""
    import torch

    import ppo.envs.make
    from ppo.envs.episodes import OpenEpisodes
    from ppo.envs.pool import WorkerPool
    from ppo.envs.worker import Worker
    from ppo.trainer import Training

    always = torch.tensor(True)
    take_snapshot = Training.snapshot

    def wait_for_replies(pool: Any, workers: Any, again: Any = None) -> dict[int, Any]:
        return {
            worker.number: worker.connection.recv() if worker.connection else worker.poll(0, 0)
            for worker in workers
        }

    def first_snapshot(training: Any) -> Any:
        if "first" not in vars(training):
            training.first = take_snapshot(training)
        return training.first

    patch(ppo.envs.make, "CheckData", lambda env, is_strict: env)
    patch(Worker, "_heartbeat", lambda worker, call: None)
    patch(WorkerPool, "_replies", wait_for_replies)
    patch(OpenEpisodes, "update", lambda episodes, *rollout: [])
    patch(Training, "snapshot", first_snapshot)
    patch(torch.Tensor, "isfinite", lambda tensor: always)


def patch(owner: Any, name: str, value: Any) -> None:
    """Replace an attribute. Raises AttributeError if it no longer exists: then the patch is out of
    date.
    """
    getattr(owner, name)
    setattr(owner, name, value)


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

    from ppo.config.resolve import resolve
    from ppo.envs.pool import WorkerPool
    from ppo.trainer import Training

    config, spaces = resolve(replace(config, total_steps=10**9))
    share = math.ceil(config.num_envs / max(1, int(config.num_workers)))
    training = Training(replace(config, num_envs=share, num_workers=0), spaces)
    threads = torch.get_num_threads()
    seconds = {"environment": 0.0, "inference": 0.0}
    found: list[dict[str, float]] = []
    with WorkerPool(training.make_worker, share, 0) as workers:
        worker = workers.workers[0].worker
        for env in worker.envs:
            env.step = Timed(env.step, seconds, "environment")
            env.reset = Timed(env.reset, seconds, "environment")
        worker.act.begin = Timed(worker.act.begin, seconds, "inference")
        worker.act = Timed(worker.act, seconds, "inference")
        start = time.perf_counter()
        while len(found) < 2 or time.perf_counter() - start < budget:
            seconds.update(environment=0.0, inference=0.0)
            torch.set_num_threads(1)  # as in a worker
            report = workers.collect(len(found) + 1)
            torch.set_num_threads(threads)
            found.append({**seconds})
            training.learn(report)
    return {part: median(rollout[part] for rollout in found[1:]) for part in seconds}


if __name__ in ("__main__", "__mp_main__"):  # the trainer, or one of its workers
    remove_safeguards()
if __name__ == "__main__":
    from main import main

    sys.exit(main(sys.argv[1:]))
