"""How many worker processes collect fastest, found by trying."""

import gc
import hashlib
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ppo.config.config import ELSEWHERE, Config
from ppo.run.folder import atomic_write
from ppo.system.hardware import available_cores

SECONDS = 0.02  # of a rollout by worker processes, beyond which to wake them is no matter
WORTHWHILE = 50  # iterations of a run, below which none is worth the second that it takes to try
CLEARLY = 1.1  # times as fast as worker processes this one must be to do without, and without their protection
IRRELEVANT_TO_SPEED = {
    "seed",
    "total_steps",
    "num_iterations",
    "learning_rate",
    "eval_every",
    "num_workers",
    *ELSEWHERE,
}


def choose_num_workers(
    config: Config, make_pool: Callable[[int], Any], made_with: dict[str, Any]
) -> tuple[int, str | None]:
    """The number of workers for a run of which that is left to us: a process for each core, unless this one alone is
    clearly faster; and what was found, for the user to see. make_pool: from a number of workers to an
    ppo.envs.pool.WorkerPool. made_with: versions, on which it may depend too. What was found once is kept, but of what the
    user may be writing just now. Nothing is tried on a busy machine, or where there is little to gain."""
    processes = int(config.num_workers)
    is_plain = processes > 1 and not config.overlap and config.inference == "worker"
    if not is_plain or config.iterations < WORTHWHILE or _is_busy():
        return processes, None
    about = {
        name: x for name, x in config.__getstate__().items() if name not in IRRELEVANT_TO_SPEED
    }
    digest = hashlib.sha256(
        json.dumps([about, processes, made_with], sort_keys=True).encode()
    ).hexdigest()
    key = f"{config.env_name} {config.num_envs} x {config.num_steps} {digest[:16]}"
    kept, path = _read()
    if key not in kept:
        try:
            kept[key] = [measure(make_pool(processes), config)]
            if config.rollout_size / kept[key][0] < SECONDS:  # so it is neither slow nor broken
                kept[key].append(measure(make_pool(0), config))
        except Exception:  # whatever it is, the run itself will say it
            return processes, None
        finally:
            gc.collect()  # worlds of the trial, before what there is is kept from being looked at
        if path and ":" not in f"{config.env_name}{config.model}":
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                with atomic_write(path) as temporary:
                    temporary.write_text(json.dumps(kept, indent=2) + "\n")
    by_processes, *alone = kept[key]
    if not alone or alone[0] < CLEARLY * by_processes:
        return processes, None
    found = (
        f"{alone[0]:,.0f} steps/s without worker processes, {by_processes:,.0f} with {processes}"
    )
    return (
        0,
        f"workers: none, for it collects {found}; give --num_workers to be safe from hangs and crashes instead",
    )


def measure(pool: Any, config: Config) -> float:
    """Steps per second of the faster of two rollouts after a first; of one, if that shows how slow it is. pool:
    ppo.envs.pool.WorkerPool."""
    with pool as workers:
        workers.collect(1)
        seconds: list[float] = []
        while len(seconds) < 2 and not (seconds and seconds[0] > 5 * SECONDS):
            start = time.perf_counter()
            workers.collect(len(seconds) + 2)
            seconds.append(time.perf_counter() - start)
    return round(config.rollout_size / min(seconds))


def _is_busy() -> bool:
    try:
        return os.getloadavg()[0] > available_cores() / 2
    except OSError:
        return False


def _read() -> tuple[dict[str, list[float]], Path | None]:
    """What is kept, as far as it can be read, and where."""
    kept, path = {}, None
    with suppress(
        OSError, ValueError, TypeError, AttributeError, RuntimeError
    ):  # the last one: there is no home
        path = (
            Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
            / "ppo"
            / "workers.json"
        )
        kept = {
            str(key): [float(x) for x in speeds]
            for key, speeds in json.loads(path.read_text()).items()
            if speeds
        }
    return kept, path
