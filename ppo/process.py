"""What this machine has, and what a run sets in its own process: threads, memory, signals."""

import ctypes
import gc
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ppo.errors import ConfigError, reason

M_TRIM_THRESHOLD = -1  # of glibc's malloc.h
M_MMAP_MAX = -4
HEARD = signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP


def core_numbers() -> list[int]:
    """Return the numbers of the cores that this process may use, [] where they are unknown."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def available_cores() -> int:
    """Return how many cores this process may use, within the limit of its container."""
    cores = len(core_numbers()) or os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, round(int(quota) / int(period))))
    except (OSError, ValueError):  # no limit
        return cores


def find_device(device: str, has_images: bool) -> str:
    """Return a device of torch that works here, with auto resolved. Raises ConfigError."""
    if device == "cpu":
        return device  # without torch
    import torch

    if device == "auto":
        # An MLP is slower on a GPU, which waits for one small matrix after another.
        device = "cuda" if has_images and torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"--device={device} cannot be used ({reason(error)})") from error
    return device


def has_bfloat16(device: str) -> bool:
    """Return whether a device multiplies bfloat16 matrices in hardware."""
    import torch

    if device.startswith("cuda"):
        return torch.cuda.is_bf16_supported(including_emulation=False)
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # not in all versions
    return device == "cpu" and any(getattr(torch.cpu, name, bool)() for name in checks)


@contextmanager
def training_process(num_threads: int) -> Iterator[None]:
    """Set this process up for training; restore all but malloc's options afterwards."""
    import torch
    from threadpoolctl import threadpool_limits

    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        # By default glibc returns a minibatch's memory, and requests it again page by page.
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    blas_threads = None if "OPENBLAS_NUM_THREADS" in os.environ else 1
    threads = torch.get_num_threads()
    own_blas = threadpool_limits(blas_threads, "blas")
    with own_blas, torch.random.fork_rng(devices=[]):
        torch.set_num_threads(num_threads)
        with flush_denormals():
            torch.ones(num_threads * 2**16).mul_(1)  # start torch's threads: they inherit it
        gc.freeze()  # what is imported now need not be looked through again and again
        try:
            yield
        finally:
            gc.unfreeze()
            torch.set_num_threads(threads)


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Compute with zero in place of denormals, which are slow: Adam's averages decay to them."""
    import torch

    was_on = not torch.full((1,), 1e-39).mul(1.0).any()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was_on)


class StopSignals:
    """Note signals that end a run. A first Ctrl-C lets the iteration finish; others are urgent."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self.is_urgent = False

    def __enter__(self) -> "StopSignals":
        can_hear = threading.current_thread() is threading.main_thread()
        heard = [x for x in HEARD if can_hear and signal.getsignal(x) != signal.SIG_IGN]  # by nohup
        self.previous = {x: signal.signal(x, self._note) for x in heard}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        if self.is_urgent:  # after a third signal, the next one has its usual effect
            self.__exit__()
        self.is_urgent = self.received is not None or number != signal.SIGINT
        self.received = self.received or signal.Signals(number)

    def urgent(self) -> bool:
        return self.is_urgent

    def any(self) -> bool:
        return self.received is not None
