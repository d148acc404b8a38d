"""Train one policy in several processes, called ranks, which torchrun starts.

Each rank has its share of the environments, and of the rows of every minibatch. Decisions are made
on values that all ranks have exchanged, so that no rank waits for one that has stopped. Rank 0 logs
and saves."""

import hashlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ppo.errors import ConfigError, RanksDiverged
from ppo.system.collectives import Collectives, distributed
from ppo.system.hardware import launch_error, torchrun_number
from ppo.system.process import die_with_launcher

Metrics = dict[str, Any]
Moments = tuple[float, Any, Any]  # count, mean and variance of samples
OnEvent = Callable[..., None]  # see ppo.run.folder.RunFolder.event


class NullObject(AbstractContextManager["NullObject"]):
    """A placeholder, in all other ranks, for an object that only rank 0 has: calls do nothing."""

    path = folder = Path(os.devnull)

    def __getattr__(self, name: str) -> "NullObject":
        return self

    def __call__(self, *arguments, **options) -> None:
        pass

    __exit__ = __call__


class ProcessGroup(Collectives, AbstractContextManager["ProcessGroup"]):
    """The ranks of a run, seen from this one. A single process has all environments, and exchanges
    nothing: its own values are those of all ranks.

    All methods that exchange data raise RankLost if another rank is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting_events: tuple[Any, ...] = ()

    def env_ids(self, num_envs: int) -> range:
        """Return the ids of this rank's environments, of num_envs in the whole run. Raises
        ConfigError if they cannot be shared evenly."""
        each, rest = divmod(num_envs, self.size)
        if rest:
            raise ConfigError(
                f"--num_envs={num_envs} cannot be shared evenly by {self.size} ranks: "
                f"give a multiple of {self.size}"
            )
        return range(self.rank * each, (self.rank + 1) * each)

    def on_rank0(self, make: Callable[..., Any], *arguments):
        """Return make(*arguments) in rank 0, and a NullObject in all others."""
        return make(*arguments) if self.rank == 0 else NullObject()

    def broadcast_from_rank0(self, function: Callable[[], Any]):
        """Call a function in rank 0; return its result, or raise its error, in every rank."""
        if self.size == 1:
            return function()
        outcome: list[Any] = [None, None]  # result, error
        if self.rank == 0:
            try:
                outcome[0] = function()
            except (Exception, SystemExit) as error:
                outcome[1] = error
        self.exchange(distributed.broadcast_object_list, outcome)
        result, failure = outcome
        if failure:
            if self.rank:
                failure.is_reported = True  # by rank 0
            raise failure
        return result

    def gather(self, part) -> list[Any]:
        """Return the parts of all ranks, in order, in every rank. Also send events that wait for
        rank 0 (see forward_events)."""
        if self.size == 1:
            return [part]
        everywhere: list[Any] = [None] * self.size
        self.exchange(distributed.all_gather_object, everywhere, (part, self.waiting_events))
        self.waiting_events = ()
        parts, events = zip(*everywhere, strict=True)
        if self.rank == 0:
            for *event, details in chain(*events):
                self.on_event(*event, **details)
        return list(parts)

    def forward_events(self, on_event: OnEvent) -> OnEvent:
        """Return the function to call for an event of this rank: on_event in rank 0; in the others,
        one that keeps the event until the next gather, in which rank 0 calls on_event with it."""
        self.on_event = on_event
        return on_event if self.rank == 0 else self._keep_event

    def _keep_event(self, kind: str, message: str = "", **details) -> None:
        """Keep an event until the next gather sends it to rank 0."""
        if message:
            message = f"rank {self.rank}: {message}"
        self.waiting_events += ((kind, message, {"rank": self.rank, **details}),)

    def all_reduce_moments(self, moments: Moments) -> Moments:
        """Return the moments of the samples of all ranks together. Mean and variance: arrays of one
        shape; the variance is that of the samples, not the unbiased estimate."""
        if self.size == 1:
            return moments
        own = np.array(np.broadcast_arrays(*moments), np.float64)
        parts = self.all_gather(torch.from_numpy(own)).numpy()
        counts, means, variances = np.moveaxis(parts, 1, 0)
        total = counts.sum(0)
        mean = (counts * means).sum(0) / total
        variance = (counts * (variances + (means - mean) ** 2)).sum(0) / total
        return total.max(), mean, variance

    def variance(self, values: Tensor) -> Tensor:
        """Return the unbiased variance (n,) of each row of values (n, B), over all ranks."""
        if self.size == 1:
            return values.var(1)
        deviations, _, _ = self._moments(list(values.cpu().double()))
        return deviations**2

    def minibatch_moments(
        self, values: Any, parts: Sequence[Any]
    ) -> Sequence[tuple[float, float] | None]:
        """Return (standard deviation, mean) over all ranks of the values in each minibatch, (1, 0)
        for fewer than two values; None for each in a single process, which has all values.

        values: (B,), of this rank; parts: ppo.algorithm.minibatches.Minibatch of each; rows of
        weight 0 do not count."""
        if self.size == 1:
            return [None] * len(parts)
        values = torch.as_tensor(values).cpu().double()
        own = [values[part.rows] if part.weight else values[:0] for part in parts]
        deviations, means, counts = self._moments(own)
        deviations[counts < 2] = 1.0
        means[counts < 2] = 0.0
        return list(zip(deviations.tolist(), means.tolist(), strict=True))

    def _moments(self, parts: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return standard deviation (unbiased), mean and count (n,) of all ranks' values in each of
        n parts, which may have different lengths."""
        rows = [[len(x), x.sum(), x.square().sum()] for x in parts]
        table = torch.tensor(rows, dtype=torch.float64)
        self.all_reduce(table)
        count, total, squares = table.unbind(1)
        deviation = ((squares - total**2 / count) / (count - 1)).clamp(min=0).sqrt()
        return deviation, total / count, count

    def all_reduce_gradients(self, gradients: Tensor, metrics: Metrics, weight: float) -> Metrics:
        """Replace gradients (P,) by their weighted sum over ranks, in place; return the metrics
        summed in the same way, on a GPU as tensors. weight: this rank's, 0 if its values do not
        count; the weights of all ranks add up to 1."""
        if self.size == 1:
            return metrics
        values = [torch.as_tensor(value).to(gradients) for value in metrics.values()]
        both = torch.cat([gradients, torch.stack(values)])
        if weight:
            both *= weight
        else:
            both.zero_()  # 0 * inf would not be 0
        self.all_reduce(both)
        summed, sums = torch.split(both, [len(gradients), len(metrics)])
        gradients.copy_(summed)
        on_cpu = sums.device.type == "cpu"  # numbers of a GPU would have to wait for it
        return dict(zip(metrics, sums.tolist() if on_cpu else sums, strict=True))

    def check_same_weights(self, weights: Tensor) -> None:
        """Raise RanksDiverged unless all ranks have the same weights (P,), bit for bit."""
        if self.size > 1:
            digest = hashlib.sha256(weights.cpu().numpy().tobytes()).digest()
            if len(set(self.gather(digest))) > 1:
                raise RanksDiverged(
                    "the ranks' weights are no longer the same: resume from the last checkpoint, "
                    "on machines of one kind"
                )

    def check_same_settings(self, settings: Mapping[str, Any], per_host: Collection[str]) -> None:
        """Raise ConfigError unless all ranks have the same settings, apart from those in per_host,
        and the environments can be shared evenly. Devices are compared by their type."""
        self.broadcast_from_rank0(lambda: self.env_ids(settings["num_envs"]))  # one error for all
        shared = {name: value for name, value in settings.items() if name not in per_host}
        shared["device"] = settings["device"].partition(":")[0]
        everywhere = self.gather(shared)
        for name, own in shared.items():
            values = [rank[name] for rank in everywhere]
            if any(value != own for value in values):
                raise ConfigError(
                    f"ranks differ: --{name} is {', '.join(map(str, values))}, give the same to all"
                )

    def __exit__(self, *exception: object) -> None:
        join_ranks.cache_clear()  # for the next run in this process
        has_failed = exception[0] and getattr(exception[1], "exit_code", 1)
        if self.size > 1 and not has_failed:  # after an error it might wait for a lost rank
            distributed.destroy_process_group()


SINGLE_PROCESS = ProcessGroup()


@cache
def join_ranks() -> ProcessGroup:
    """Return the ranks of this run, after joining them if torchrun started several; the same object
    until its context is left. Raises ConfigError if the environment does not describe them,
    RankLost if they do not all arrive."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        die_with_launcher()
    ranks = ProcessGroup()
    if torchrun_number("WORLD_SIZE", 1, low=1) > 1:
        check_rendezvous()
        ranks.exchange(ranks.join)
    return ranks


def check_rendezvous() -> None:
    """Raise ConfigError unless the environment says which rank this is, and where all meet."""
    rank, size, port = map(torchrun_number, ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    if rank >= size:
        raise launch_error(f"RANK={rank}, which is not below WORLD_SIZE={size}")
    if port >= 2**16:
        raise launch_error(f"MASTER_PORT={port}, which is not a port")
    if not os.environ.get("MASTER_ADDR"):
        raise launch_error("no MASTER_ADDR")
