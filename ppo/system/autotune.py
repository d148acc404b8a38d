"""Find by trial whether worker processes or this process alone collect rollouts faster."""

import gc
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ppo.system.files import write_json
from ppo.system.hardware import available_cores

LONG_ROLLOUT = 0.02  # seconds, beyond which the cost of waking processes does not matter
FEWEST_ITERATIONS = 50  # of a run that is worth the second a trial takes
UNTIMED = (
    "seed",
    "total_steps",
    "num_iterations",
    "learning_rate",
)  # of no importance for the speed of collecting
CLEARLY_FASTER = 1.1  # times as fast, to do without the protection that worker processes give


def choose_num_workers(
    config, make_pool: Callable[[int], Any], versions: Mapping[str, Any]
) -> tuple[int, list[str]]:
    """Choose config.num_workers or 0, whichever collects faster; return it with notes for the
    user.

    config: a resolved ppo.config.config.Config; make_pool: makes a ppo.envs.pool.WorkerPool of so
    many workers; versions: what else speed may depend on. Results are cached, except for
    environments, wrappers and models given by import path or as objects, which the user may be
    changing. Nothing is tried on a busy machine, or where there is little to gain."""
    num_workers = int(config.num_workers)
    has_choice = num_workers > 1 and not config.overlap and config.inference == "worker"
    if not has_choice or config.iterations < FEWEST_ITERATIONS:
        return num_workers, []
    with suppress(OSError):  # not every system tells how busy it is
        if os.getloadavg()[0] > available_cores() / 2:
            return num_workers, []
    speeds: list[float] = []
    with suppress(OSError, ValueError, TypeError, RuntimeError):
        speeds = [float(x) for x in json.loads(_cache_path(config, versions).read_text())]
    if not speeds:
        try:
            speeds = [measure(make_pool(num_workers), config)]
            if config.rollout_size / speeds[0] < LONG_ROLLOUT:  # neither slow nor broken
                speeds.append(measure(make_pool(0), config))
        except Exception:  # the run itself will raise it again and report it
            return num_workers, []
        finally:
            gc.collect()  # the trial's environments, before the run freezes what there is
        if not re.search("[:<]", f"{config.env_name}{config.model}{config.wrapper}"):
            with suppress(OSError, RuntimeError):
                path = _cache_path(config, versions)
                path.parent.mkdir(parents=True, exist_ok=True)
                write_json(path, speeds)
    if speeds[-1] < CLEARLY_FASTER * speeds[0]:  # so it is, too, if only workers were tried
        return num_workers, []
    return 0, [
        f"workers: none, which collects {speeds[-1]:,.0f} steps/s without worker processes, "
        f"{speeds[0]:,.0f} with {num_workers}; give --num_workers to be protected from hangs "
        "and crashes instead"
    ]


def measure(pool, config) -> float:
    """Return the environment steps per second of a ppo.envs.pool.WorkerPool.

    After a first rollout the faster of two counts; the second is left out if the first is very
    slow."""
    seconds = []
    with pool:
        pool.collect(1)
        for iteration in (2, 3):
            start = time.perf_counter()
            pool.collect(iteration)
            seconds.append(time.perf_counter() - start)
            if seconds[0] > 5 * LONG_ROLLOUT:
                break
    return config.rollout_size / min(seconds)


def _cache_path(config, versions: Mapping[str, Any]) -> Path:
    """Return the file for the speeds measured with these settings: with workers, and perhaps
    without. Raises RuntimeError if there is no home."""
    irrelevant = (*UNTIMED, *config.names(scope="run"))
    settings = {name: x for name, x in config.__getstate__().items() if name not in irrelevant}
    content = json.dumps([settings, versions], sort_keys=True)
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root, "ppo", "workers", f"{hashlib.sha256(content.encode()).hexdigest()}.json")
