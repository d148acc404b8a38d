"""Exchange data between the processes that torchrun starts: on CPUs by gloo, on GPUs by NCCL."""

import hashlib
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

from ppo.errors import RankLost

distributed: Any = torch.distributed  # which does not export all of it by name
MOST_GATHERED = 100_000  # numbers of all ranks, up to which a gather is faster than an all-reduce
TIMEOUT = timedelta(minutes=30)  # another rank may be evaluating, or replacing a worker that hangs


class Collectives:
    """Exchange data with the other ranks, once this process has joined them.

    Every exchange waits for all ranks, and raises RankLost if one has ended or does not answer."""

    rank = 0
    size = 1
    seconds = 0.0  # spent in exchanges, including the wait for other ranks

    def join(self) -> None:
        """Join the process group that torchrun describes in environment variables."""
        store, self.rank, self.size = next(distributed.rendezvous("env://"))
        name = attempt_name(store, self.rank, self.size)
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
            timeout=TIMEOUT,
            store=distributed.PrefixStore(name, store),
            rank=self.rank,
            world_size=self.size,
        )

    def exchange(self, collective: Callable[..., Any], *arguments) -> None:
        """Call a function of torch.distributed, and count its time. Raises RankLost if it fails."""
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
        """Stack all ranks' tensors (...) of one shape to (ranks, ...)."""
        parts = part.new_empty(self.size, *part.shape)
        self.exchange(distributed.all_gather, list(parts), part)
        return parts

    def all_reduce(self, part: Tensor) -> None:
        """Replace a tensor by its sum over ranks. Small ones are gathered: half as many
        messages."""
        if part.device.type == "cpu" and part.numel() * self.size <= MOST_GATHERED:
            part.copy_(self.all_gather(part).sum(0))
        else:
            self.exchange(distributed.all_reduce, part)


def attempt_name(store, rank: int, size: int) -> str:
    """Agree with all ranks of this attempt, and none of an earlier one, on a name.

    torch 2.13 keeps one store for all restarts, with the addresses of ranks that are gone. So each
    rank writes a fresh number, and the digest of all numbers that it sees; once all ranks have
    written the same digest, their numbers are those of ranks that are alive."""
    store.set(f"ppo/new/{rank}", uuid.uuid4().hex)
    ranks = range(size)
    while True:
        numbers = store.multi_get([f"ppo/new/{other}" for other in ranks])
        name = hashlib.sha256(b"".join(numbers)).hexdigest()
        store.set(f"ppo/seen/{rank}", name)
        if set(store.multi_get([f"ppo/seen/{other}" for other in ranks])) == {name.encode()}:
            return name
        time.sleep(0.02)
