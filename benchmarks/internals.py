"""All that benchmarks know of the trainer's internals; who changes those adapts this file only.

python -m benchmarks.internals --flags runs main.py without its safeguards, for
benchmarks.overheads; worker processes, which import the main module, are without them too.
benchmarks.throughput imports measure_worker and num_sides.
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
    import ppo.trainer
    from ppo.envs.heartbeat import Heartbeat
    from ppo.envs.pool import WorkerPool
    from ppo.extras.resume.episodes import OpenEpisodes
    from ppo.run.checkpoint import Checkpoints

    always = torch.tensor(True)
    take_snapshot = ppo.trainer.snapshot
    copy_state = Checkpoints.keep

    def wait_for_reply(worker: Any) -> Any:
        if not worker.channel:
            return worker.poll()
        worker.channel.end.setblocking(True)
        return worker.channel.receive()

    def wait_for_replies(pool: Any, workers: Any, *command: Any) -> dict[Any, Any]:
        return {worker: wait_for_reply(worker) for worker in workers}

    def first_snapshot(parts: Any, monitor: Any) -> Any:
        if "first" not in vars(monitor):
            monitor.first = take_snapshot(parts, monitor)
        return monitor.first

    def keep_first(checkpoints: Any, state: Any, is_best: bool = False) -> None:
        if not checkpoints.last_state:
            copy_state(checkpoints, state)

    patch(ppo.envs.make, "inspected", lambda config, env: env)
    patch(Heartbeat, "beat", lambda heartbeat, call, environment=0: None)
    patch(WorkerPool, "_receive", wait_for_replies)
    patch(OpenEpisodes, "update", lambda episodes, *rollout: None)
    patch(ppo.trainer, "snapshot", first_snapshot)
    patch(Checkpoints, "keep", keep_first)
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


if __name__ in ("__main__", "__mp_main__"):  # the trainer, or one of its workers
    remove_safeguards()
if __name__ == "__main__":
    from main import main

    sys.exit(main(sys.argv[1:]))
