"""The ranks of a run: each has its share of the environments, and learns from their rows; gradients
are averaged over all, so that all have the same weights. Rank 0 logs and saves."""

import hashlib
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ppo.algorithm.rollout import Metrics
from ppo.components import Components
from ppo.config.config import Config
from ppo.errors import ConfigError, Interrupted, PPOError
from ppo.extras.distributed.collectives import Collectives, distributed
from ppo.extras.distributed.torchrun import LAUNCH, torchrun_number
from ppo.parts import Part
from ppo.peers import Peers
from ppo.run.summary import RunSummary
from ppo.system.clock import Clock
from ppo.system.output import show
from ppo.system.signals import STOP
from ppo.system.state_dict import State
from ppo.trainer import learn

PER_MACHINE = ("device", "num_workers")  # flags of which each rank may have its own value


class Launched(Peers):
    """A process that torchrun has started, and starts again if it fails."""

    def __init__(self) -> None:
        self.about = {"launch": os.environ.get(LAUNCH)}  # identifies the run after a restart

    def __exit__(self, *exception: Any) -> None:
        if isinstance(exception[1], Interrupted):
            exception[1].exit_code = 0  # else torchrun would start it again


class Ranks(Launched):
    """The ranks of a run, seen from this one.

    All methods that exchange data raise RankLost if another rank is gone."""

    is_alone = False

    def __init__(self) -> None:
        super().__init__()
        self.collectives = Collectives()
        self.collectives.exchange(self.collectives.join)
        self.rank, self.size = self.collectives.rank, self.collectives.size
        self.is_first = self.rank == 0
        choose_gpu()

    def ids(self, num_envs: int) -> range:
        each, rest = divmod(num_envs, self.size)
        if rest:
            error = ConfigError(
                f"--num_envs={num_envs} cannot be shared evenly by {self.size} ranks: "
                f"give a multiple of {self.size}"
            )
            error.is_reported = not self.is_first
            raise error
        return range(self.rank * each, (self.rank + 1) * each)

    def gather(self, value: Any) -> list[Any]:
        everywhere: list[Any] = [None] * self.size
        self.collectives.exchange(distributed.all_gather_object, everywhere, value)
        return everywhere

    def call_in_first(self, make: Callable[[], Any]) -> Any:
        outcome: list[Any] = [None, None]  # result, error
        if self.is_first:
            try:
                outcome[0] = make()
            except (Exception, SystemExit) as error:
                outcome[1] = error
        self.collectives.exchange(distributed.broadcast_object_list, outcome)
        result, failure = outcome
        if failure:
            failure.is_reported = not self.is_first
            raise failure
        return result

    def average(self, gradients: Tensor, metrics: Metrics) -> Metrics:
        values = [torch.as_tensor(value).to(gradients) for value in metrics.values()]
        both = torch.cat([gradients, torch.stack(values)])
        self.collectives.all_reduce(both)
        both /= self.size
        mean, means = torch.split(both, [len(gradients), len(metrics)])
        gradients.copy_(mean)
        on_cpu = means.device.type == "cpu"  # numbers of a GPU would have to wait for it
        return dict(zip(metrics, means.tolist() if on_cpu else means, strict=True))

    def metrics(self) -> Metrics:
        seconds, self.collectives.seconds = self.collectives.seconds, 0.0
        return {"seconds_exchanging": seconds}

    def follow(self, parts: Components) -> RunSummary:
        """Do what ppo.trainer.Training does in rank 0, but for what only that has: run folder,
        callbacks, loggers and checkpoints. Messages about workers are shown with the rank."""
        config = parts.config
        with STOP.raising(), parts.make_pool(on_event=self._show) as workers:
            if config.is_resumed:
                _, state = self.call_in_first(nothing)
                parts.state_dict()  # with which rank 0 compares it
                parts.load_state_dict(state)
            first = parts.iteration + 1
            parts.state_dict()
            STOP.at_once = False
            clock = Clock()
            end = self.call_in_first(nothing)
            parts.take_changes()
            for iteration in range(first, end + 1):
                if config.is_resumed and iteration == first:
                    parts.restore_environments(workers)
                learn(parts, workers, iteration, clock)
                decision = self.call_in_first(nothing)
                parts.take_changes()
                is_stopped = STOP.agree_to_stop(self.gather) or decision.stop_reason
                is_last = is_stopped or iteration == config.iterations
                if decision.is_save_due or is_last:
                    parts.state_dict()
                if is_last:
                    break
        if STOP.received:
            error = Interrupted(STOP.received, "stopped with rank 0, which says more")
            error.is_reported = True
            raise error
        return self.call_in_first(nothing)

    def _show(self, kind: str, message: str = "", **details: Any) -> None:
        """Show the message of an event that concerns this rank's workers."""
        if message:
            show(f"warning: rank {self.rank}: {message}")

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        has_failed = exception[0] and getattr(exception[1], "exit_code", 1)
        if not has_failed:  # after an error it might wait for a lost rank
            distributed.destroy_process_group()


def choose_gpu() -> None:
    """Let "cuda" be a GPU of this rank's own, if there are enough."""
    number = torchrun_number("LOCAL_RANK", 0)
    if number < torch.cuda.device_count():
        torch.cuda.set_device(number)


def nothing() -> None:
    """What a rank other than the first adds to what rank 0 shares."""


class RanksDiverged(PPOError):
    """The ranks of a distributed run have different weights."""


class SameWeights(Part):
    """Raise RanksDiverged where state is saved unless all ranks have the same weights, bit for
    bit."""

    def __init__(self, parts: Components) -> None:
        self.parts = parts

    def state_dict(self) -> State:
        weights = self.parts.learner.weights
        digest = hashlib.sha256(weights.cpu().numpy().tobytes()).digest()
        if len(set(self.parts.peers.gather(digest))) > 1:
            raise RanksDiverged(
                "the ranks' weights are no longer the same: resume from the last checkpoint, "
                "on machines of one kind"
            )
        return {}


def check_settings(parts: Components) -> None:
    """Raise ConfigError unless all ranks train with the same settings, on CUDA by a GPU each."""
    number, count = torchrun_number("LOCAL_RANK", 0), torch.cuda.device_count()
    if parts.config.device.startswith("cuda") and number >= count:
        raise ConfigError(
            f"--device={parts.config.device}: rank {number} of this machine has no GPU of its own: "
            f"start {count}, as many as there are GPUs"
        )
    settings = parts.config.__getstate__()
    names = {*Config.names(scope="training")} - {*PER_MACHINE}
    own = {name: value for name, value in settings.items() if name in names}
    everywhere = parts.peers.gather(own)
    for name, value in own.items():
        values = [rank[name] for rank in everywhere]
        if any(other != value for other in values):
            raise ConfigError(
                f"ranks differ: --{name} is {', '.join(map(str, values))}, give the same to all"
            )
