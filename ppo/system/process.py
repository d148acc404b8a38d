"""Settings of the whole process: threads, memory, determinism and garbage collection."""

import ctypes
import gc
import os
import signal
import sys

from ppo.system.state_dict import State

PR_SET_PDEATHSIG = 1  # of Linux's prctl.h
M_TRIM_THRESHOLD = -1  # of glibc's malloc.h
M_MMAP_MAX = -4


def configure_process(num_threads: int, deterministic: bool) -> None:
    """Set torch's intra-op threads and determinism, and keep freed memory in the process."""
    import torch  # heavy

    torch.set_num_threads(num_threads)
    disable_malloc_trim()
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # CUDA refuses without it
        torch.use_deterministic_algorithms(True)  # even False would import torch's whole compiler


def disable_malloc_trim() -> None:
    """Have glibc keep freed memory. By default it returns a minibatch's activations to the system
    and takes them again, page by page, in every gradient step."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def generator_states(device: str) -> State:
    """Return the states of torch's random generators, as tensors."""
    import torch

    states = {"cpu": torch.get_rng_state()}
    if device.startswith("cuda"):
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_generator_states(states: State, device: str) -> None:
    """Restore what generator_states returned, of those devices that are used here as well."""
    import torch

    torch.set_rng_state(states["cpu"])
    if "cuda" in states and device.startswith("cuda"):
        torch.cuda.set_rng_state(states["cuda"], device)


def freeze_garbage() -> None:
    """Exempt all present objects from garbage collection, and turn it on: what lasts as long as the
    run need not be scanned again and again. Objects of an earlier run are collected first."""
    if gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()
    gc.freeze()
    gc.enable()


def die_with_parent() -> None:
    """Have Linux kill this process when its parent ends, however that ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
