"""Exchange data between the processes that torchrun starts: on CPUs by gloo, on GPUs by NCCL."""

import hashlib
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed.nn  # now: imported after joining, it keeps the group and its threads
from torch import Tensor

from ppo.errors import PPOError

distributed: Any = torch.distributed  # Any: it does not export all of its names to type checkers
MAX_GATHERED = 100_000  # elements on all ranks, up to which a gather is faster than an all-reduce
TIMEOUT = timedelta(minutes=30)  # another rank may be evaluating, or replacing a worker that hangs


class RankLost(PPOError):
    """Another rank of a distributed run has ended or does not answer."""


class Collectives:
    """Exchange data with the other ranks, once this process has joined them.

    Every exchange waits for all ranks, and raises RankLost if one has ended or does not answer
    within 30 minutes."""

    def __init__(self) -> None:
        self.rank = 0
        self.size = 1
        self.seconds = 0.0  # spent in exchanges, including the wait for other ranks

    def join(self) -> None:
        """Join the process group that torchrun describes in environment variables.

        Call it by exchange, which turns a failure into RankLost."""
        store, self.rank, self.size = next(distributed.rendezvous("env://"))
        name = attempt_name(store, self.rank, self.size)
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
            timeout=TIMEOUT,
            store=distributed.PrefixStore(name, store),
            rank=self.rank,
            world_size=self.size,
        )

    def exchange(self, collective: Callable[..., Any], *arguments: Any) -> None:
        """Call a function of torch.distributed, and add its time to seconds. Raises RankLost if it
        fails."""
        start = time.perf_counter()
        try:
            collective(*arguments)
        except RuntimeError as error:
            reason = str(error).partition("\n")[0].partition(". ")[0]
            raise RankLost(
                f"another rank has ended or does not answer ({reason}): see its own error, "
                "then continue with --resume; torchrun --max-restarts does both"
            ) from error
        self.seconds += time.perf_counter() - start

    def all_gather(self, part: Tensor) -> Tensor:
        """Return the tensors (...) of all ranks, which must have one shape, as (ranks, ...)."""
        parts = part.new_empty(self.size, *part.shape)
        self.exchange(distributed.all_gather, list(parts), part)
        return parts

    def all_reduce(self, part: Tensor) -> None:
        """Replace a tensor by its sum over ranks, in place. Small ones on the CPU are gathered and
        summed, which takes half as many messages."""
        if part.device.type == "cpu" and part.numel() * self.size <= MAX_GATHERED:
            part.copy_(self.all_gather(part).sum(0))
        else:
            self.exchange(distributed.all_reduce, part)


def attempt_name(store: Any, rank: int, size: int) -> str:
    """Return a name that all ranks of this attempt agree on, and that no earlier attempt had.

    torch 2.13 keeps one store for all restarts, with the addresses of ranks that are gone. So each
    rank writes a new random number, then a digest of the numbers of all ranks. Once all digests are
    equal, every number is that of a rank that is alive. store: a torch.distributed.Store."""
    store.set(f"ppo/new/{rank}", uuid.uuid4().hex)
    ranks = range(size)
    while True:
        numbers = store.multi_get([f"ppo/new/{other}" for other in ranks])
        name = hashlib.sha256(b"".join(numbers)).hexdigest()
        store.set(f"ppo/seen/{rank}", name)
        if set(store.multi_get([f"ppo/seen/{other}" for other in ranks])) == {name.encode()}:
            return name
        time.sleep(0.02)
