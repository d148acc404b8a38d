"""What several benchmarks need: about the machine, memory of processes, and work in a fresh process."""

import importlib.metadata
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

from ppo.envs.worker_process import ONE_THREAD

ROOT = Path(__file__).parents[1]


def about_machine(*packages: str) -> dict[str, Any]:
    """What a measurement is made on: hardware, how busy it is already, versions, and the trainer's commit."""
    cpuinfo, git = Path("/proc/cpuinfo"), ["git", "describe", "--always", "--dirty"]
    model = re.search(r"model name\s*: (.*)", cpuinfo.read_text() if cpuinfo.exists() else "")
    return {
        "cpu": model[1] if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        "versions": {
            "python": platform.python_version(),
            **{p: importlib.metadata.version(p) for p in packages},
        },
        "commit": subprocess.run(git, cwd=ROOT, capture_output=True, text=True).stdout.strip()
        or None,
    }


def resident(root: int) -> float:
    """MiB of memory of a process and all that it has started, a page that several share counted once."""
    processes, total = [root], 0
    for process in processes:
        folder = Path(f"/proc/{process}")
        try:
            processes += [
                int(child) for child in (folder / f"task/{process}/children").read_text().split()
            ]
            total += int((folder / "smaps_rollup").read_text().split("Pss:")[1].split()[0])
        except (OSError, IndexError):
            pass  # it has just ended
    return total / 1024


def peak_memory(*command: str) -> float:
    """MiB at the most while a command of Python runs. What it prints is dropped."""
    with subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, stdout=subprocess.DEVNULL
    ) as process:
        peak = 0.0
        while process.poll() is None:
            peak = max(peak, resident(process.pid))
            time.sleep(0.1)
    assert process.returncode == 0
    return peak


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a process of its own, where numpy has one thread, as in a worker."""
    with (
        mock.patch.dict(os.environ, ONE_THREAD),
        ProcessPoolExecutor(1, get_context("spawn")) as process,
    ):
        return process.submit(function, *arguments).result()
