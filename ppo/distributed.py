"""What torchrun adds: several processes, called ranks, that learn one policy, each from its share of the environments.

Each takes its own rows of every minibatch of the whole run; what is decided is decided on sums over all ranks, so that
none waits for one that has stopped; the first one logs and saves."""

import ctypes
import hashlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ppo.flags import ConfigError


class Diverged(Exception):
    """Ranks that should have the same weights have not; the message says what to do."""

    exit_code = 1


class Silent(AbstractContextManager):
    """In the place of what the first rank does for all: whatever it is asked for, it does nothing, but that it prints
    the messages of its rank's events."""

    path = folder = Path(os.devnull)

    def event(self, kind: str, message: Any = "", *rest: Any, **details: Any) -> None:
        if message and kind != "doctor":  # the first rank's is enough
            print(f"warning: rank {os.environ['RANK']}: {message}", file=sys.stderr, flush=True)

    def __getattr__(self, name: str) -> "Silent":
        return self

    def __call__(self, *arguments: Any, **options: Any) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        pass


class Alone(AbstractContextManager):
    """A run's only process. Sums and what is gathered are its own part."""

    rank, size = 0, 1

    def columns(self, num_envs: int) -> range:
        """Which of a run's environments are here. Raises ConfigError if they cannot be shared evenly."""
        if num_envs % self.size:
            below, above = num_envs // self.size * self.size, -(-num_envs // self.size) * self.size
            fix = f"give {above}" if not below else f"give {below} or {above}"
            raise ConfigError(f"--num_envs={num_envs} cannot be shared evenly by {self.size} ranks: {fix}")
        each = num_envs // self.size
        return range(self.rank * each, (self.rank + 1) * each)

    def gather(self, part: Any) -> list[Any]:
        """What each rank gives, in every rank."""
        return [part]

    def only_first(self, make: Callable[..., Any], *arguments: Any) -> Any:
        """What is made in the first rank, and elsewhere something in its place that does nothing."""
        return make(*arguments) if self.rank == 0 else Silent()

    def first(self, function: Callable[[], Any]) -> Any:
        """What a function returns in the first rank, in every rank."""
        return function()

    def pool(self, moments: tuple) -> tuple:
        """Those of all ranks' samples together, as envs.normalize has them: number, mean and variance."""
        return moments

    def average(self, gradients: Tensor, metrics: dict[str, Any], share: float) -> dict[str, Any]:
        """Replace gradients by their weighted sum over ranks, and return metrics likewise. share: this rank's weight,
        all of which add up to 1."""
        return metrics

    def moments(self, values: Tensor, parts: Sequence[Any]) -> list[Any]:
        """(deviation, mean) of all ranks' values (B,) in each ppo.rollout.Minibatch; None if those here are all."""
        return [None] * len(parts)

    def check_same(self, weights: Tensor) -> None:
        """Raises Diverged unless all ranks have the same weights."""

    def __exit__(self, *exception: object) -> None:
        pass


class Ranks(Alone):
    """Those that torchrun has started: on CPUs by gloo, gradients on GPUs by NCCL."""

    def __init__(self, device: str) -> None:
        if sys.platform == "linux":  # end with the launcher, however that ends
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        from torch import distributed

        self.distributed = distributed
        distributed.init_process_group("cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo")
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()

    def gather(self, part: Any) -> list[Any]:
        parts: list[Any] = [None] * self.size
        self.distributed.all_gather_object(parts, part)
        return parts

    def first(self, function: Callable[[], Any]) -> Any:
        result = [function() if self.rank == 0 else None]
        self.distributed.broadcast_object_list(result)
        return result[0]

    def pool(self, moments: tuple) -> tuple:
        parts = self.gather(moments)
        total = sum(count for count, _, _ in parts)
        mean = sum(count * own for count, own, _ in parts) / total
        squares = sum(count * (variance + (own - mean) ** 2) for count, own, variance in parts)
        return total, mean, squares / total

    def average(self, gradients: Tensor, metrics: dict[str, Any], share: float) -> dict[str, Any]:
        values = torch.tensor([float(x) for x in metrics.values()], dtype=gradients.dtype, device=gradients.device)
        both = torch.cat([gradients, values]) * share
        self.distributed.all_reduce(both)
        gradients.copy_(both[: len(gradients)])
        sums = both[len(gradients) :]
        return dict(zip(metrics, sums.tolist() if sums.device.type == "cpu" else sums.unbind(), strict=True))

    def moments(self, values: Tensor, parts: Sequence[Any]) -> list[Any]:
        values = values.cpu().double()
        chosen = [values[part.rows] if part.share else values[:0] for part in parts]
        table = torch.tensor([[len(part), part.sum(), part.square().sum()] for part in chosen], dtype=torch.float64)
        self.distributed.all_reduce(table)
        count, total, squares = table.unbind(1)
        deviations = ((squares - total**2 / count) / (count - 1)).clamp(min=0).sqrt()
        found = zip(deviations.tolist(), (total / count).tolist(), count.tolist(), strict=True)
        return [(deviation, mean) if n > 1 else (1.0, 0.0) for deviation, mean, n in found]

    def check_same(self, weights: Tensor) -> None:
        if len(set(self.gather(hashlib.sha256(weights.cpu().numpy().tobytes()).digest()))) > 1:
            raise Diverged(
                "the ranks' weights are no longer the same: go on from the last checkpoint, on like machines"
            )

    def __exit__(self, *exception: object) -> None:
        if exception[0] is None:  # else others may be gone, and it would wait for them
            self.distributed.destroy_process_group()


ALONE = Alone()


def join(device: str) -> Alone:
    """The ranks of this run, if torchrun has started it."""
    return Ranks(device) if int(os.environ.get("WORLD_SIZE", "1")) > 1 else ALONE


def go_on_after_restart(given: Mapping[str, str], default: str) -> dict[str, str]:
    """Flags by which a run that torchrun starts again, for a rank was lost, goes on from its last checkpoint. default:
    how its folder begins, if that is not given; torchrun's own name of the run follows."""
    if given.get("seeds", "1") != "1":
        raise ConfigError(f"--seeds={given['seeds']} is for one process: leave it out, or leave out torchrun")
    if "resume" in given:
        return dict(given)
    is_restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    folder = given.get("run_dir") or f"runs/{default}-{os.environ['TORCHELASTIC_RUN_ID']}"
    return {**given, "run_dir": folder, **({"resume": "auto"} if is_restarted else {})}
