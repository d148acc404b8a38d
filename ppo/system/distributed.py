"""Train one policy by several processes, called ranks, that torchrun starts.

Each rank has its share of the environments and takes its rows of every minibatch of the whole run.
Every decision is made on sums over all ranks, so that no rank waits for one that has stopped. Rank
0 logs and saves."""

import hashlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ppo.errors import ConfigError, Diverged
from ppo.system.collectives import Collectives
from ppo.system.process import die_with_parent

Moments = tuple[float, Any, Any]  # count, mean and variance of samples
OnEvent = Callable[
    ..., None
]  # (kind, message, count, **details), as ppo.run.folder.RunFolder.event


class MinibatchPart(Protocol):
    """A rank's rows of a minibatch. weight: their share of all of its rows; with 0 they do not
    count."""

    rows: Tensor
    weight: float


class NullObject(AbstractContextManager["NullObject"]):
    """Stand in, in all other ranks, for an object of rank 0: every call does nothing."""

    path = folder = Path(os.devnull)

    def __getattr__(self, name: str) -> "NullObject":
        return self

    def __call__(self, *arguments: Any, **options: Any) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        pass


class SingleProcess(AbstractContextManager["SingleProcess"]):
    """A run of one process: it has all environments, and every sum over ranks is its own part."""

    rank = 0
    size = 1
    seconds = 0.0  # spent in exchanges with other ranks, including the wait for them

    def env_ids(self, num_envs: int) -> range:
        """Return which of the run's environments this rank has. Raises ConfigError if they cannot
        be shared evenly."""
        each = num_envs // self.size
        if each * self.size != num_envs:
            above = (each + 1) * self.size
            fix = f"give {each * self.size} or {above}" if each else f"give {above}"
            problem = f"--num_envs={num_envs} cannot be shared evenly by {self.size} ranks"
            raise ConfigError(f"{problem}: {fix}")
        return range(self.rank * each, (self.rank + 1) * each)

    def on_rank0(self, make: Callable[..., Any], *arguments: Any) -> Any:
        """Return what make returns in rank 0, and a NullObject in all others."""
        return make(*arguments) if self.rank == 0 else NullObject()

    def broadcast_from_rank0(self, function: Callable[[], Any]) -> Any:
        """Call a function in rank 0; return its result, or raise its error, in every rank."""
        return function()

    def gather(self, part: Any) -> list[Any]:
        """Return every rank's part, in every rank."""
        return [part]

    def forward_events(self, on_event: OnEvent) -> OnEvent:
        """Return what to call for an event of this rank, so that rank 0 calls on_event."""
        return on_event

    def needs_snapshot(self, is_due: bool) -> bool:
        """Return whether to copy the run's state now. A single process always does, to have a state
        to save whatever happens next; several ranks, which must exchange theirs, only if a
        checkpoint is due."""
        return True

    def all_reduce_moments(self, moments: Moments) -> Moments:
        """Merge the moments of all ranks' samples."""
        return moments

    def variance(self, values: Tensor) -> Tensor:
        """Return the unbiased variances (n,) of all ranks' values (n, B)."""
        return values.var(1)

    def minibatch_moments(
        self, values: Tensor, parts: Sequence[MinibatchPart]
    ) -> Sequence[tuple[float, float] | None]:
        """Return (deviation, mean) of all ranks' values (B,) in each minibatch; None if all of them
        are here."""
        return [None] * len(parts)

    def all_reduce_gradients(
        self, gradients: Tensor, metrics: dict[str, Any], weight: float
    ) -> dict[str, Any]:
        """Replace gradients (P,) by their weighted sum over ranks, in place; return the metrics
        summed the same way. weight: this rank's; the weights of all ranks add up to 1."""
        return metrics

    def check_same_weights(self, weights: Tensor) -> None:
        """Raise Diverged unless all ranks have the same weights."""

    def check_same_settings(self, settings: Mapping[str, Any], per_host: Collection[str]) -> None:
        """Raise ConfigError unless all ranks have the same settings, apart from those in per_host,
        and a number of environments that can be shared. Devices are compared by their type."""

    def __exit__(self, *exception: object) -> None:
        pass


class ProcessGroup(SingleProcess):
    """A run of several ranks. All methods that exchange data raise RankLost if another rank is
    gone."""

    def __init__(self, collectives: Collectives) -> None:
        self.collectives = collectives
        self.rank = collectives.rank
        self.size = collectives.size
        self.forwarder = EventForwarder(self.rank)

    @property
    def seconds(self) -> float:
        return self.collectives.seconds

    @seconds.setter
    def seconds(self, seconds: float) -> None:
        self.collectives.seconds = seconds

    def broadcast_from_rank0(self, function: Callable[[], Any]) -> Any:
        result: Any = None
        failure: Any = None
        if self.rank == 0:
            try:
                result = function()
            except Exception as error:
                failure = error
        result, failure = self.collectives.broadcast((result, failure))
        if failure:
            if self.rank:
                failure.is_reported = True  # by rank 0
            raise failure
        return result

    def gather(self, part: Any) -> list[Any]:
        """Return every rank's part, in every rank; forwarded events travel with it."""
        everywhere = self.collectives.gather((part, self.forwarder.waiting))
        self.forwarder.waiting.clear()
        if self.rank == 0:
            for _, events in everywhere:
                for event, details in events:
                    self.on_event(*event, **details)
        return [part for part, _ in everywhere]

    def forward_events(self, on_event: OnEvent) -> OnEvent:
        self.on_event = on_event
        return on_event if self.rank == 0 else self.forwarder

    def needs_snapshot(self, is_due: bool) -> bool:
        return is_due

    def all_reduce_moments(self, moments: Moments) -> Moments:
        flat = np.concatenate([np.ravel(part).astype(np.float64) for part in moments])
        rows = self.collectives.all_gather(torch.from_numpy(flat)).numpy()
        counts = rows[:, :1]
        means, variances = np.split(rows[:, 1:], 2, axis=1)
        total = counts.sum()
        mean = (counts * means).sum(0) / total
        squares = (counts * (variances + (means - mean) ** 2)).sum(0)
        shape = np.shape(moments[1])
        return total, mean.reshape(shape), (squares / total).reshape(shape)

    def variance(self, values: Tensor) -> Tensor:
        rows = self._moments(list(values.cpu().double()))
        return torch.stack([deviation**2 for deviation, _, _ in rows])

    def minibatch_moments(
        self, values: Tensor, parts: Sequence[MinibatchPart]
    ) -> Sequence[tuple[float, float]]:
        values = values.cpu().double()
        own = [values[part.rows] if part.weight else values[:0] for part in parts]
        return [
            (deviation.item(), mean.item()) if count > 1 else (1.0, 0.0)
            for deviation, mean, count in self._moments(own)
        ]

    def all_reduce_gradients(
        self, gradients: Tensor, metrics: dict[str, Any], weight: float
    ) -> dict[str, Any]:
        values = [
            torch.as_tensor(value, dtype=gradients.dtype, device=gradients.device)
            for value in metrics.values()
        ]
        both = torch.cat([gradients, torch.stack(values)])
        if weight:
            both *= weight
        else:
            both.zero_()  # 0 * inf would not be 0
        self.collectives.all_reduce(both)
        gradients.copy_(both[: len(gradients)])
        sums = both[len(gradients) :]
        on_cpu = sums.device.type == "cpu"  # numbers of a GPU would have to wait for it
        return dict(zip(metrics, sums.tolist() if on_cpu else sums.unbind(), strict=True))

    def check_same_weights(self, weights: Tensor) -> None:
        digest = hashlib.sha256(weights.cpu().numpy().tobytes()).digest()
        if len(set(self.gather(digest))) > 1:
            fix = "resume from the last checkpoint, on machines of one kind"
            raise Diverged(f"the ranks' weights are no longer the same: {fix}")

    def check_same_settings(self, settings: Mapping[str, Any], per_host: Collection[str]) -> None:
        self.broadcast_from_rank0(lambda: self.env_ids(settings["num_envs"]))  # one message, not N
        shared = {name: value for name, value in settings.items() if name not in per_host}
        shared["device"] = settings["device"].partition(":")[0]
        everywhere = self.gather(shared)
        values = {name: [rank[name] for rank in everywhere] for name in shared}
        differing = [name for name in shared if any(x != shared[name] for x in values[name])]
        if differing:
            found = [f"{name} is {', '.join(map(str, values[name]))}" for name in differing]
            problem = f"ranks differ ({'; '.join(found)})"
            raise ConfigError(f"{problem}: give the same --{differing[0]} to all")

    def __exit__(self, *exception: object) -> None:
        join_ranks.cache_clear()  # for the next run in this process
        if exception[0] is None or getattr(exception[1], "exit_code", 1) == 0:
            self.collectives.close()  # after an error it might wait for a lost rank

    def _moments(self, parts: list[Tensor]) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Return deviation, mean and count of all ranks' values in each part (n,)."""
        rows = [
            torch.stack([torch.tensor(float(len(x))), x.sum(), x.square().sum()]) for x in parts
        ]
        table = torch.stack(rows)
        self.collectives.all_reduce(table)
        count, total, squares = table.unbind(1)
        deviation = ((squares - total**2 / count) / (count - 1)).clamp(min=0).sqrt()
        return list(zip(deviation, total / count, count, strict=True))


class EventForwarder:
    """Keep the events of a rank until the next gather takes them to rank 0."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.waiting: list[tuple[tuple[str, str, int], dict[str, Any]]] = []

    def __call__(self, kind: str, message: str = "", count: int = 1, **details: Any) -> None:
        text = f"rank {self.rank}: {message}" if message else ""
        self.waiting.append(((kind, text, count), {"rank": self.rank, **details}))


SINGLE_PROCESS = SingleProcess()


@cache
def join_ranks() -> SingleProcess:
    """Join the ranks of this run if torchrun started it. Raises RankLost if they do not all
    arrive."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        die_with_parent()  # the launcher
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return SINGLE_PROCESS
    return ProcessGroup(Collectives())
