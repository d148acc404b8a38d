"""What torchrun adds: several processes, called ranks, that learn one policy, each from its share of the environments.

Each takes its own rows of every minibatch of the whole run; what is decided is decided on sums over all ranks, so that
none waits for one that has stopped; the first one logs and saves."""

import ctypes
import hashlib
import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ppo.config.config import Config
from ppo.errors import ConfigError, Diverged, RankLost
from ppo.run.folder import folder_name

SMALL = 100_000  # numbers in all ranks: to get those of all takes half of the steps, one after the other, of a sum
OF_A_MACHINE = {"num_workers", "run_dir", "resume"}
LONGEST_WAIT = timedelta(
    minutes=30
)  # for another rank, which may evaluate meanwhile, or replace a worker that hangs


class NullObject(AbstractContextManager):
    """In the place of what the first rank does for all: whatever it is asked for, it does nothing."""

    path = folder = Path(os.devnull)

    def __getattr__(self, name: str) -> "NullObject":
        return self

    def __call__(self, *arguments: Any, **options: Any) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        pass


class SingleProcess(AbstractContextManager):
    """A run's only process. Sums and what is gathered are its own part."""

    rank, size = 0, 1
    seconds = 0.0  # spent on exchanges with other ranks, waiting for them included

    def columns(self, num_envs: int) -> range:
        """Which of a run's environments are here. Raises ConfigError if they cannot be shared evenly."""
        if num_envs % self.size:
            below, above = num_envs // self.size * self.size, -(-num_envs // self.size) * self.size
            fix = f"give {above}" if not below else f"give {below} or {above}"
            raise ConfigError(
                f"--num_envs={num_envs} cannot be shared evenly by {self.size} ranks: {fix}"
            )
        each = num_envs // self.size
        return range(self.rank * each, (self.rank + 1) * each)

    def on_rank0(self, make: Callable[..., Any], *arguments: Any) -> Any:
        """What is made in the first rank, and elsewhere something in its place that does nothing."""
        return make(*arguments) if self.rank == 0 else NullObject()

    def broadcast_from_rank0(self, function: Callable[[], Any]) -> Any:
        """What a function returns, or raises, in the first rank, in every rank."""
        return function()

    def gather(self, part: Any) -> list[Any]:
        """What each rank gives, in every rank."""
        return [part]

    def noting(self, event: Callable[..., None]) -> Callable[..., None]:
        """What to call, as ppo.run.folder.RunFolder.event, for something that happens in one rank only."""
        return event

    def is_to_keep(self, is_due: bool) -> bool:
        """Whether to take a copy of the run's state. A lone process always has one, to save whatever comes next; where
        all ranks must be asked for theirs, only one that is due to be saved."""
        return True

    def all_reduce_moments(self, moments: tuple) -> tuple:
        """Those of all ranks' samples together, as ppo.envs.normalize has them: number, mean and variance."""
        return moments

    def variance(self, values: Tensor) -> Tensor:
        """(n,) without bias, of all ranks' values (n, B)."""
        return values.var(1)

    def moments(self, values: Tensor, parts: Sequence[Any]) -> list[Any]:
        """(deviation, mean) of all ranks' values (B,) in each ppo.algorithm.rollout.Minibatch; None if those here are all."""
        return [None] * len(parts)

    def all_reduce_gradients(
        self, gradients: Tensor, metrics: dict[str, Any], share: float
    ) -> dict[str, Any]:
        """Replace gradients by their weighted sum over ranks, and return metrics likewise. share: this rank's weight,
        all of which add up to 1."""
        return metrics

    def check_same_weights(self, weights: Tensor) -> None:
        """Raises Diverged unless all ranks have the same weights."""

    def check_same_settings(self, settings: Mapping[str, Any]) -> None:
        """Raises ConfigError unless all ranks have the same, but for what a machine alone is asked for, and a number
        of environments that can be shared."""

    def __exit__(self, *exception: object) -> None:
        pass


class ProcessGroup(SingleProcess):
    """Those that torchrun has started: on CPUs by gloo, gradients on GPUs by NCCL. All that exchanges something raises
    RankLost if another rank is gone."""

    def __init__(self) -> None:
        from torch import distributed

        self.distributed = distributed
        self.noted: list[tuple] = []
        self._exchange(self._begin)

    def _begin(self) -> None:
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        store, self.rank, self.size = next(self.distributed.rendezvous("env://"))
        where = {
            "store": _meet(store, self.rank, self.size),
            "rank": self.rank,
            "world_size": self.size,
        }
        self.distributed.init_process_group(backend, timeout=LONGEST_WAIT, **where)

    def broadcast_from_rank0(self, function: Callable[[], Any]) -> Any:
        result: list[Any] = [None, None]
        if self.rank == 0:
            try:
                result[0] = function()
            except Exception as error:
                result[1] = error
        self._exchange(self.distributed.broadcast_object_list, result)
        if result[1]:
            if self.rank:
                result[1].is_reported = True  # by the first one
            raise result[1]
        return result[0]

    def gather(self, part: Any) -> list[Any]:
        """What was noted goes with it."""
        parts: list[Any] = [None] * self.size
        self._exchange(self.distributed.all_gather_object, parts, (part, self.noted))
        self.noted = []
        if self.rank == 0:
            for rank, (_, noted) in enumerate(parts):
                for kind, message, count, details in noted:
                    self.event(
                        kind, message and f"rank {rank}: {message}", count, rank=rank, **details
                    )
        return [part for part, _ in parts]

    def noting(self, event: Callable[..., None]) -> Callable[..., None]:
        self.event = event
        return event if self.rank == 0 else self._note

    def _note(self, kind: str, message: str = "", count: int = 1, **details: Any) -> None:
        self.noted.append((kind, message, count, details))

    def is_to_keep(self, is_due: bool) -> bool:
        return is_due

    def all_reduce_moments(self, moments: tuple) -> tuple:
        own = torch.from_numpy(
            np.concatenate([np.ravel(part).astype(np.float64) for part in moments])
        )
        rows = self._stack(own).numpy()
        counts, means, variances = rows[:, :1], *np.split(rows[:, 1:], 2, axis=1)
        total = counts.sum()
        mean = (counts * means).sum(0) / total
        squares = (counts * (variances + (means - mean) ** 2)).sum(0)
        return (
            total,
            mean.reshape(np.shape(moments[1])),
            (squares / total).reshape(np.shape(moments[2])),
        )

    def variance(self, values: Tensor) -> Tensor:
        return torch.stack(
            [deviation**2 for deviation, _, _ in self._moments(list(values.cpu().double()))]
        )

    def moments(self, values: Tensor, parts: Sequence[Any]) -> list[Any]:
        values = values.cpu().double()
        found = self._moments([values[part.rows] if part.share else values[:0] for part in parts])
        return [
            (deviation.item(), mean.item()) if count > 1 else (1.0, 0.0)
            for deviation, mean, count in found
        ]

    def _moments(self, parts: list[Tensor]) -> list[Any]:
        """Deviation, mean and number of all ranks' values in each part."""
        table = torch.stack(
            [torch.stack([torch.tensor(float(len(x))), x.sum(), x.square().sum()]) for x in parts]
        )
        self._sum(table)
        count, total, squares = table.unbind(1)
        deviation = ((squares - total**2 / count) / (count - 1)).clamp(min=0).sqrt()
        return list(zip(deviation, total / count, count, strict=True))

    def all_reduce_gradients(
        self, gradients: Tensor, metrics: dict[str, Any], share: float
    ) -> dict[str, Any]:
        values = torch.stack(
            [
                torch.as_tensor(x, dtype=gradients.dtype).to(gradients.device)
                for x in metrics.values()
            ]
        )
        both = torch.cat([gradients, values])
        both = both * share if share else torch.zeros_like(both)  # though they are not finite
        self._sum(both)
        gradients.copy_(both[: len(gradients)])
        sums = both[len(gradients) :]
        return dict(
            zip(metrics, sums.tolist() if sums.device.type == "cpu" else sums.unbind(), strict=True)
        )

    def check_same_weights(self, weights: Tensor) -> None:
        if len(set(self.gather(hashlib.sha256(weights.cpu().numpy().tobytes()).digest()))) > 1:
            raise Diverged(
                "the ranks' weights are no longer the same: go on from the last checkpoint, on like machines"
            )

    def check_same_settings(self, settings: Mapping[str, Any]) -> None:
        self.broadcast_from_rank0(
            lambda: self.columns(settings["num_envs"])
        )  # so that it is said once
        own = {name: value for name, value in settings.items() if name not in OF_A_MACHINE}
        everywhere = self.gather({**own, "device": settings["device"].partition(":")[0]})
        if wrong := [
            name
            for name in everywhere[0]
            if any(rank[name] != everywhere[0][name] for rank in everywhere)
        ]:
            found = "; ".join(
                f"{name} is {', '.join(str(rank[name]) for rank in everywhere)}" for name in wrong
            )
            raise ConfigError(f"ranks differ ({found}): give --{wrong[0]}, the same for all")

    def _sum(self, part: Tensor) -> None:
        """Replace it by the sum of all ranks' parts."""
        if part.device.type == "cpu" and part.numel() * self.size <= SMALL:
            part.copy_(self._stack(part).sum(0))
        else:
            self._exchange(self.distributed.all_reduce, part)

    def _stack(self, part: Tensor) -> Tensor:
        """All ranks' parts (size, ...)."""
        parts = part.new_empty(self.size, *part.shape)
        self._exchange(self.distributed.all_gather, list(parts), part)
        return parts

    def _exchange(self, collective: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        start = time.perf_counter()
        try:
            collective(*arguments, **options)
        except RuntimeError as error:
            reason = str(error).partition("\n")[0].partition(". ")[0]
            fix = "see what it said, and go on by --resume; with --max-restarts torchrun does"
            raise RankLost(
                f"another rank has ended or does not answer ({reason}): {fix}"
            ) from error
        self.seconds += time.perf_counter() - start

    def __exit__(self, *exception: object) -> None:
        join_ranks.cache_clear()  # for a next run
        if (
            exception[0] is None or getattr(exception[1], "exit_code", 1) == 0
        ):  # else it might wait for lost ones
            self.distributed.destroy_process_group()


def _meet(store: Any, rank: int, size: int) -> Any:
    """A part of the launcher's store of which all ranks of this attempt know, and none of an earlier one, whose
    addresses are still there (torch 2.13 keeps one store for all). Each writes a number that is new, and what numbers
    it has seen: when all have seen the same, these are of ranks that live."""
    from torch.distributed import PrefixStore

    store.set(f"ppo/new/{rank}", uuid.uuid4().hex)
    ranks = range(size)
    while True:
        numbers = store.multi_get([f"ppo/new/{number}" for number in ranks])
        name = hashlib.sha256(b"".join(numbers)).hexdigest()
        store.set(f"ppo/seen/{rank}", name)
        if set(store.multi_get([f"ppo/seen/{number}" for number in ranks])) == {name.encode()}:
            return PrefixStore(name, store)
        time.sleep(0.02)


SINGLE_PROCESS = SingleProcess()


@cache
def join_ranks() -> SingleProcess:
    """The ranks of this run, if torchrun has started it. Raises RankLost if they do not come together."""
    if (
        "TORCHELASTIC_RUN_ID" in os.environ and sys.platform == "linux"
    ):  # end with the launcher, however that ends
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    return ProcessGroup() if int(os.environ.get("WORLD_SIZE", "1")) > 1 else SINGLE_PROCESS


def resume_if_begun(given: Mapping[str, str]) -> dict[str, str]:
    """Flags by which a run of torchrun's goes on from its last checkpoint, if that has started it before: a rank was
    lost, or a machine has come. Without run_dir the folder is named as torchrun names the run. Raises ConfigError if
    that cannot be known."""
    if given.get("seeds", "1") != "1":
        raise ConfigError(
            f"--seeds={given['seeds']} is for one process: leave it out, or leave out torchrun"
        )
    if "resume" in given:
        return dict(given)
    launch = os.environ["TORCHELASTIC_RUN_ID"]
    if launch == "none":
        raise ConfigError(
            "torchrun --rdzv_id=none: give the run a name by it, to be known by when it is started again"
        )
    default = (
        f"runs/{folder_name(given.get('name', given.get('env_name', Config.env_name)))}-{launch}"
    )
    folder = default if given.get("run_dir", "none") == "none" else given["run_dir"]
    with suppress(OSError, ValueError, AttributeError):
        if json.loads(Path(folder, "config.json").read_text()).get("launch") == launch:
            return {**given, "run_dir": folder, "resume": "auto"}
    return {**given, "run_dir": folder}
