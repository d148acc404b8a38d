"""What this machine has, and what a run sets in its own process."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ppo.errors import ConfigError

M_TRIM_THRESHOLD = -1  # of glibc's malloc.h
M_MMAP_MAX = -4
BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def find_device(device: str, has_images: bool) -> str:
    """Return a device of torch that works here, with auto resolved. Raises ConfigError."""
    import torch

    if device == "auto":
        # An MLP is slower on a GPU, which waits for one small matrix after another.
        device = "cuda" if has_images and torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        cause = str(error).splitlines()[0].split(". ")[0]
        raise ConfigError(f"--device={device} cannot be used ({cause}): give cpu") from error
    return device


def has_bfloat16(device: str) -> bool:
    """Return whether a device multiplies bfloat16 matrices in hardware."""
    import torch

    if device.startswith("cuda"):
        return torch.cuda.is_bf16_supported(including_emulation=False)
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # not in all versions
    return device == "cpu" and any(getattr(torch.cpu, name, bool)() for name in checks)


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


def keep_freed_memory() -> None:
    """Let glibc keep freed memory. By default it returns the memory of a minibatch's activations to
    the system, and requests it again, page by page, in every gradient step."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


@contextmanager
def training_process(num_threads: int) -> Iterator[None]:
    """Set this process up for training; restore torch's threads and random state, and the threads
    of numpy's BLAS, when the context is left."""
    import torch

    keep_freed_memory()
    threads = torch.get_num_threads()
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[]))
        if BLAS_THREADS not in os.environ:
            from threadpoolctl import threadpool_limits

            stack.enter_context(threadpool_limits(1, user_api="blas"))
        torch.set_num_threads(num_threads)
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
