"""What the machine has, and how it is best used."""

import ctypes
import os
import sys

import torch

from ppo.errors import ConfigError

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h


def find_device(device: str, images: bool) -> str:
    """A device that is there, auto resolved. Raises ConfigError if it is not."""
    if (
        device == "auto"
    ):  # for an MLP a GPU would be slower: it waits for one small matrix after another
        device = "cuda" if images and torch.cuda.is_available() else "cpu"
    if (
        device.startswith("cuda") and int(os.environ.get("WORLD_SIZE", "1")) > 1
    ):  # one for each rank
        device = f"cuda:{os.environ['LOCAL_RANK']}"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].split(". ")[0]
        raise ConfigError(
            f"--device={device} cannot be used ({reason}): give --device=cpu"
        ) from error
    return device


def has_bfloat16(device: str) -> bool:
    """Whether a device multiplies matrices of bfloat16 in hardware."""
    if device.startswith("cuda"):
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device == "cpu" and (
        torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    )


def available_cores() -> int:
    """Processors that this process may use; of ranks on one machine (ppo.system.distributed) each has its share."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def physical_memory() -> int:
    """Bytes of memory that the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def disable_malloc_trim() -> None:
    """Have glibc keep memory that was once taken: else it gives a minibatch's activations back to the system, and takes
    them anew, page by page, in every gradient step."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def check_memory(flags: str, needed: int) -> None:
    """Raises ConfigError for a run that cannot fit into the machine, in bytes."""
    if needed > physical_memory():
        sizes = f"{needed / 2**30:,.0f} GiB, this machine has {physical_memory() / 2**30:,.0f}"
        raise ConfigError(f"--{flags} must be lower: the run would need {sizes}")
