"""What this machine has, and what a run sets in its own process: threads, memory, signals."""

import ctypes
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from ppo.errors import ConfigError, reason

M_TRIM_THRESHOLD = -1  # of glibc's malloc.h
M_MMAP_MAX = -4
HEARD = ("SIGINT", "SIGTERM", "SIGUSR1", "SIGHUP")


def core_numbers() -> list[int]:
    """Return the numbers of the cores that this process may use, [] where nothing tells them."""
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
    import torch

    if device == "auto":
        # An MLP is slower on a GPU, which waits for one small matrix after another.
        device = "cuda" if has_images and torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            f"--device={device} cannot be used ({reason(error)}): give cpu"
        ) from error
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
    """Set this process up for training; restore torch's threads and random state when the context
    is left."""
    import torch
    from threadpoolctl import threadpool_limits

    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        # By default glibc returns the memory of a minibatch's activations to the system, and
        # requests it again, page by page, in every gradient step.
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    if "OPENBLAS_NUM_THREADS" not in os.environ:
        threadpool_limits(1, user_api="blas")
    threads = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    with torch.random.fork_rng(devices=[]):
        with flush_denormals():
            torch.ones(num_threads * 2**16).mul_(1)  # threads inherit it when torch starts them
        try:
            yield
        finally:
            torch.set_num_threads(threads)


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Compute with zero in place of denormal numbers, with which processors take up to a hundred
    times as long. Adam's averages of weights without a gradient decay to them."""
    import torch

    was_on = not torch.full((1,), 1e-39).mul(1.0).any()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was_on)


class StopSignals:
    """Note signals that end a run while the context lasts; all that wait look at the flag. A first
    Ctrl-C lets the iteration finish; a second one, or another signal, is urgent."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self.is_urgent = False
        self.previous: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():  # only there can they be heard
            for number in (getattr(signal, name) for name in HEARD):
                if signal.getsignal(number) != signal.SIG_IGN:  # as by nohup
                    self.previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.is_urgent = self.received is not None or number != signal.SIGINT
        self.received = self.received or signal.Signals(number)

    def urgent(self) -> bool:
        """Return whether to stop at once rather than at the end of the iteration."""
        return self.is_urgent

    def any(self) -> bool:
        """Return whether there was a signal."""
        return self.received is not None
