"""Settings of the whole process: threads, memory, determinism and garbage collection."""

import ctypes
import gc
import os
import signal
import sys
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import current_process
from pathlib import Path
from threading import RLock, current_thread, main_thread
from typing import Any

from ppo.errors import ConfigError
from ppo.system.state_dict import State

PR_SET_PDEATHSIG = 1  # of Linux's prctl.h
M_TRIM_THRESHOLD = -1  # of glibc's malloc.h
M_MMAP_MAX = -4
BLAS_THREADS = "OPENBLAS_NUM_THREADS"
LOCKS: dict[tuple[int, str], Any] = {}  # by the process and the function


def configure_command() -> None:
    """Prepare a command's own process, before numpy is imported: keep freed memory, wait for child
    processes, and let OpenBLAS compute numpy's small matrices in one thread."""
    wait_for_children()
    os.environ.setdefault(BLAS_THREADS, "1")
    disable_malloc_trim()


def wait_for_children() -> bool:
    """Let the system keep the exit codes of child processes until they are waited for, if what has
    started this process ignores their ends (SIGCHLD), which is inherited; return whether it does.
    Only Python's main thread can."""
    is_ignored = signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
    if is_ignored and current_thread() is main_thread():
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        return True
    return False


def configure_process(num_threads: int, deterministic: bool) -> None:
    """Set torch's number of intra-op threads and its determinism, and start the threads so that
    they flush denormal numbers."""
    import torch  # heavy

    torch.set_num_threads(num_threads)
    with flush_denormals():
        torch.ones(num_threads * 2**16).mul_(1)  # threads inherit it when torch starts them
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # torch requires it on CUDA
        torch.use_deterministic_algorithms(True)  # even False would import torch's whole compiler


@contextmanager
def in_one_thread(function: str) -> Iterator[None]:
    """Let no other thread of this process call a function, which changes it, at the same time.
    Raises ConfigError if one does."""
    lock = LOCKS.setdefault((os.getpid(), function), RLock())  # a fork has none of its parent's
    if not lock.acquire(blocking=False):
        raise ConfigError(
            f"{function} is being called in another thread of this process, whose signals and "
            "random numbers two would share: call it after that, or in a process of its own"
        )
    try:
        yield
    finally:
        lock.release()


@contextmanager
def restored_process() -> Iterator[None]:
    """Restore what training changes in a process, when the context is left: environment variables,
    torch's threads, determinism and random state, garbage collection, the threads of numpy's BLAS,
    which is limited to one unless OPENBLAS_NUM_THREADS says otherwise, and whether SIGCHLD is
    ignored."""
    import torch

    variables = dict(os.environ)
    threads = torch.get_num_threads()
    is_deterministic = torch.are_deterministic_algorithms_enabled()
    warns_only = torch.is_deterministic_algorithms_warn_only_enabled()
    collects = gc.isenabled()
    num_frozen = gc.get_freeze_count()
    ignored_children = wait_for_children()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices), one_blas_thread(), not_daemonic():
            yield
    finally:
        torch.set_num_threads(threads)
        if torch.are_deterministic_algorithms_enabled() != is_deterministic:
            torch.use_deterministic_algorithms(is_deterministic, warn_only=warns_only)
        for name in os.environ.keys() - variables:
            del os.environ[name]
        os.environ.update(variables)
        if not num_frozen and gc.get_freeze_count():
            gc.unfreeze()
            gc.collect()  # shared memory, too
        (gc.enable if collects else gc.disable)()
        if ignored_children:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)


@contextmanager
def not_daemonic() -> Iterator[None]:
    """Let this process start others even if it is daemonic, such as one of multiprocessing.Pool."""
    process = current_process()
    is_daemonic = process.daemon
    process.daemon = False
    try:
        yield
    finally:
        process.daemon = is_daemonic


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Compute numpy's matrix products in one thread: with small matrices, more would only wait for
    each other. Does nothing if OPENBLAS_NUM_THREADS is set, as in a command's own process."""
    if BLAS_THREADS in os.environ:
        yield
        return
    with _loaded_libraries().limit(limits=1, user_api="blas"):
        yield


@cache
def _loaded_libraries() -> Any:
    """Return the controller of numpy's libraries, which takes some 30 ms to find them."""
    import numpy  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Compute with zero instead of denormal numbers, with which processors take up to a hundred
    times as long. Adam's averages of weights without a gradient decay to them.

    Only there: environments, and a program that calls train, compute as they would by themselves.
    """
    import torch

    was_on = not torch.full((1,), 1e-39).mul(1.0).any()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was_on)


def disable_malloc_trim() -> None:
    """Let glibc keep freed memory. By default it returns the memory of a minibatch's activations to
    the system, and requests it again, page by page, in every gradient step."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def generator_states(device: str) -> State:
    """Return the states of torch's random generators as tensors: "cpu", on CUDA also "cuda"."""
    import torch

    states = {"cpu": torch.get_rng_state()}
    if device.startswith("cuda"):
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_generator_states(states: State, device: str) -> None:
    """Restore what generator_states returned; a "cuda" state only if the device is on CUDA."""
    import torch

    torch.set_rng_state(states["cpu"])
    if "cuda" in states and device.startswith("cuda"):
        torch.cuda.set_rng_state(states["cuda"], device)


def freeze_garbage() -> None:
    """Turn garbage collection on, but exempt all objects that exist now, instead of those of an
    earlier run: most of them last as long as the run, and need not be scanned."""
    gc.freeze()
    gc.enable()


def ignore_harmless_warnings() -> None:
    """Leave out numpy's warnings about overflow in this package's code (weights, losses and
    observations that are not finite are reported in a sentence), and torch's that it copies an
    LSTM's weights together on CUDA, which takes no time. Those about other code stay."""
    warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"ppo\.")
    warnings.filterwarnings("ignore", message="RNN module weights are not part of single")


def die_with_parent(parent: int) -> None:
    """Let Linux kill this process when its parent (the thread that started it) ends in any way, and
    end it at once if the parent has ended already. Other systems do only that.

    parent: the parent's process id, as it says itself: another process inherits orphans."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def kill_tree(process: int) -> None:
    """Kill a child process and, on Linux, all that it has started."""
    tree = [process, *_descendants(process)]
    for one in tree:
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def _descendants(process: int) -> Iterator[int]:
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            for child in map(int, path.read_text().split()):
                yield child
                yield from _descendants(child)


def use_batch_scheduling(cores: Collection[int]) -> None:
    """Let this process, when it wakes up, wait until the one on its core has gone to sleep, and run
    on some cores only, unless there are none.

    By default Linux may let it run at once: the trainer, which has just woken a worker, would wait
    for milliseconds before it can wake the next one. On other systems, do nothing."""
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox may forbid it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
            if cores:
                os.sched_setaffinity(0, cores)
