"""Look up what this machine has: devices, cores and memory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ppo.errors import ConfigError

CONTAINER = Path("/sys/fs/cgroup")
sharing = 1  # processes that learn together on this machine, which extensions may raise
ALIGNMENT = 64  # bytes of a cache line, at multiples of which shared arrays begin


def find_device(device: str, images: bool) -> str:
    """Return a device of torch that works here, with auto resolved. images: whether there are
    images. Raises ConfigError if it does not work."""
    import torch  # heavy; workers import this module

    if device == "auto":
        # An MLP is slower on a GPU, which waits for one small matrix after another.
        device = "cpu"
        if images and torch.cuda.is_available():
            device = "cuda"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].split(". ")[0]
        raise ConfigError(
            f"--device={device} cannot be used ({reason}): give --device=cpu"
        ) from error
    return device


def has_bfloat16(device: str) -> bool:
    """Return whether a device multiplies bfloat16 matrices in hardware."""
    import torch  # for the same reason

    if device.startswith("cuda"):
        return torch.cuda.is_bf16_supported(including_emulation=False)
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # not in all versions of torch
    return device == "cpu" and any(getattr(torch.cpu, name, bool)() for name in checks)


def available_cores() -> int:
    """Return how many cores this process may use; those that learn together share them equally."""
    cores = len(core_numbers()) or os.cpu_count() or 1
    quota, *period = _container_limit("cpu.max")
    if quota != "max":
        cores = min(cores, round(int(quota) / int(*period)))
    return max(1, cores // sharing)


def core_numbers() -> list[int]:
    """Return the numbers of the cores that this process may use, [] where nothing tells them."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return []


def physical_memory() -> int:
    """Return the memory in bytes of the machine, or of the container that this process is in."""
    (limit,) = _container_limit("memory.max")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return memory if limit == "max" else min(memory, int(limit))


def _container_limit(name: str) -> list[str]:
    """Return the words of a limit of this process's container (control group, version 2), the first
    of which is "max" for none."""
    try:
        return (CONTAINER / name).read_text().split()
    except OSError:
        return ["max"]


@contextmanager
def within_limits(what: str, flags: str = "") -> Iterator[None]:
    """Turn an OSError in this context into a ConfigError that names a limit of the system.

    what: names what is made, flags: names the flags to lower, if any, both for the message."""
    try:
        yield
    except OSError as error:
        reason = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
        lower = f"--{flags} must be lower, or a limit" if flags else "a limit must be"
        raise ConfigError(
            f"{what} cannot be made ({reason}): {lower} higher (ulimit -n, ulimit -f, the size of "
            "/dev/shm, which must be writable)"
        ) from error


@contextmanager
def within_gpu_memory() -> Iterator[None]:
    """Turn torch's error for a GPU's memory in this context into a ConfigError with the flags to
    change."""
    try:
        yield
    except RuntimeError as error:
        import torch  # heavy

        if not isinstance(error, torch.OutOfMemoryError):
            raise
        reason = ". ".join(str(error).split(". ")[:2])
        raise ConfigError(
            f"the GPU's memory does not suffice ({reason}): give more --num_minibatches, a lower "
            "--num_envs or --num_steps, or --device=cpu"
        ) from error


def check_memory(flags: str, needed: int, what: str = "the run") -> None:
    """Raise ConfigError if something needs more bytes than the machine's memory. flags: names those
    to lower, what: names what needs it, for the message."""
    available = physical_memory()
    if needed > available:
        raise ConfigError(
            f"--{flags} must be lower: {what} would need {needed / 2**30:,.0f} GiB, this machine "
            f"has {available / 2**30:,.0f}"
        )
