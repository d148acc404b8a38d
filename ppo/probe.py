"""How many worker processes collect fastest, found by trying."""

import json
import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ppo.config import Config
from ppo.run import written_whole

SECONDS = 0.02  # of a rollout in this process, beyond which to wake others is no matter
WORTHWHILE = 50  # iterations of a run, below which none is worth the second that it takes to try
CLEARLY = 1.1  # times as fast as worker processes this one must be to do without


def find_num_workers(config: Config, make_pool: Callable[[int], Any]) -> tuple[int, str | None]:
    """The number of workers for a run of which that is left to us, and what was found, for the user to see. make_pool:
    from a number of workers to an envs.pool.WorkerPool. What was found once on a machine is kept for the next time."""
    many = int(config.num_workers)  # a process for each core, if there are as many environments
    if many == 1 or config.iterations < WORTHWHILE or config.overlap or config.inference == "learner":
        return many, None
    path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ppo" / "workers.json"
    sizes = (config.num_envs, config.num_steps, config.model, config.hidden_size, config.num_layers)
    key = " ".join(map(str, (platform.node(), many, config.env_name, json.dumps(config.env_kwargs), *sizes)))
    known = {}
    with suppress(OSError, ValueError, TypeError):
        known = dict(json.loads(path.read_text()))
    if not isinstance(known.get(key), dict):
        speeds = {}
        for count in (0, many):
            speeds[count] = measure(make_pool(count), config)
            if config.rollout_size / speeds[count] > SECONDS:
                break
        known[key] = {str(count): round(speed) for count, speed in speeds.items()}
        if os.getloadavg()[0] < 1:  # on a busy machine this would not hold the next time
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                with written_whole(path) as temporary:
                    temporary.write_text(json.dumps(known, indent=2) + "\n")
    here, there = (known[key].get(str(count)) for count in (0, many))
    if there is None:
        return many, None
    best = 0 if here > CLEARLY * there else many
    return best, f"workers: {many} processes collect {there:,} steps/s, this one alone {here:,} (in {path})"


def measure(pool: Any, config: Config) -> float:
    """Steps per second of the faster one of two rollouts, after a first. pool: envs.pool.WorkerPool."""
    with pool as workers:
        workers.collect(1)
        seconds = []
        for iteration in (2, 3):
            start = time.perf_counter()
            workers.collect(iteration)
            seconds.append(time.perf_counter() - start)
    return config.rollout_size / min(seconds)
