"""Train one policy in several processes, called ranks, that torchrun starts.

Rank k of n steps its own num_envs / n environments, with the seeds and noise that they have in a
single process, and learns from their rows. Gradients and metrics are averaged in each minibatch,
statistics and episodes are merged once a rollout. Rank 0 reads the command line, owns the run's
folder, logs, evaluates, saves and has the callbacks; those that override on_batch or loss are
copied to the other ranks. --num_workers is per rank.

A signal to any rank ends the run after the iteration, with exit code 0, so that torchrun
--max-restarts does not start a cancelled job again. If a rank fails, the others end without a
message of their own. GPUs have not been tried."""

import ctypes
import math
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from itertools import islice
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import cloudpickle
import numpy as np
import torch
import torch.distributed.nn  # imported later, it would keep threads of the group
from numpy import ndarray

from ppo.callbacks import Callback, overriding
from ppo.checkpoint import LAST, select
from ppo.config import flag_names
from ppo.envs.normalize import RunningMeanStd
from ppo.envs.pool import PR_SET_PDEATHSIG, WorkerPool
from ppo.envs.worker import STEPS, Report, carried_tables, merged
from ppo.errors import ConfigError, Interrupted, PPOError, Stopped, TrainingError, reason
from ppo.folder import RunFolder
from ppo.learner import Learner
from ppo.process import StopSignals, training_process
from ppo.rollout import Batch, Metrics, Rollout
from ppo.run import Run
from ppo.state import restore
from ppo.trainer import RunSummary, execute, prepare

distributed: Any = torch.distributed
VARIABLES = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT"
MERGED = ("actions", "terminations", "truncations")  # tables


def train(
    given: Mapping[str, Any], callbacks: Sequence[Callback], signals: StopSignals
) -> RunSummary:
    """Train as one of the ranks. Raises ConfigError if variables of torchrun are missing or
    environments cannot be divided among ranks, and as ppo.train."""
    names = VARIABLES.split()
    missing = [name for name in names if not os.environ.get(name)]
    if missing:
        raise ConfigError(
            f"the environment variables {', '.join(missing)} are missing: start with torchrun, or "
            "unset RANK and WORLD_SIZE to train in a single process"
        )
    if sys.platform == "linux":  # end with the launcher
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    with joined() as rank, TemporaryDirectory() as place:
        settings, callbacks, resumed, state = prepare_rank(rank, given, callbacks, place)
        spaces = settings.spaces
        config = spaces.config
        count = distributed.get_world_size()
        size, rest = divmod(config.num_envs, count)
        if rest:
            raise ConfigError(f"--num_envs={config.num_envs}: give a multiple of the {count} ranks")
        if config.device.startswith("cuda"):
            number = int(os.environ["LOCAL_RANK"])
            torch.cuda.set_device(number)
        num_threads = 1 if config.threads == "auto" else config.threads
        first = rank * size
        ids = range(first, first + size)
        with closing(RankPool(spaces, ids=ids)) as pool, training_process(num_threads):
            run = RankRun(settings, pool, callbacks, signals)
            if resumed:
                restore(run, state, resumed / "checkpoints" / LAST)
            if rank:
                run.state = {}  # rank 0 says what differs from the saved one
            with RunFolder(config, None if rank else resumed) as folder:
                content = {**config.to_json(), **run.extra_flags}
                folder.write_json("config.json", content)
                summary = execute(run, folder)
                return gather(summary)[0]


def prepare_rank(
    rank: int,
    given: Mapping[str, Any],
    callbacks: Sequence[Callback],
    place: str,
) -> Any:
    """Return for each rank what ppo.trainer.prepare does. All but rank 0 run in the folder place,
    without evaluations."""
    shared: Any = None
    if rank == 0:
        settings, callbacks, *resumed = prepare(given, callbacks)
        others = [
            callback
            for callback in callbacks
            if overriding([callback], "on_batch") or overriding([callback], "loss")
        ]
        shared = settings, others, *resumed
    everyone = gather(shared)
    if rank:
        settings, callbacks, *resumed = everyone[0]
    config = settings.spaces.config
    if settings.given.num_workers == "auto":
        count = int(os.environ["LOCAL_WORLD_SIZE"])
        num_workers = math.ceil(int(config.num_workers) / count)
        config = replace(config, num_workers=num_workers)
    if rank:
        config = replace(config, run_dir=place, eval_every=None, eval_episodes=0)
    spaces = settings.spaces.with_config(config)
    settings = replace(settings, spaces=spaces)
    return settings, callbacks, *resumed


@contextmanager
def joined() -> Iterator[int]:
    """Join the other ranks, and return which this is. Only the first error of all is shown."""
    store, rank, size = exchange(next, distributed.rendezvous("env://"))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = distributed.PrefixStore(attempt, store)  # without addresses of an earlier one
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    exchange(
        distributed.init_process_group,
        backend,
        store=store,
        rank=rank,
        world_size=size,
    )
    try:
        yield rank
    except Interrupted as error:
        error.exit_code = 0
        if rank:
            error.args = ("",)
        raise
    except BaseException as error:
        if exchange(store.add, "errors", 1) == 1:
            raise
        quiet = error if isinstance(error, PPOError) else PPOError()
        quiet.args = ("",)
        raise quiet from error
    finally:
        distributed.destroy_process_group()


def exchange(function: Any, *arguments: Any, **options: Any) -> Any:
    """Call a function that waits for other ranks. Raises TrainingError."""
    try:
        return function(*arguments, **options)
    except RuntimeError as error:
        raise TrainingError(
            f"another rank ended, or is not responding ({reason(error)}): continue with --resume"
        ) from error


def gather(value: Any) -> list[Any]:
    """Return the values of all ranks, in order."""
    found = [b""] * distributed.get_world_size()
    own = cloudpickle.dumps(value)
    exchange(distributed.all_gather_object, found, own)
    with suppress(RuntimeError):  # a rank that left at once might break this exchange in another
        distributed.barrier()
    return [cloudpickle.loads(x) for x in found]


class RankPool(WorkerPool):
    def collect(self, iteration: int, attributes: Any) -> Report:
        """Collect a rank's columns, and copy from the other ranks what a run saves of theirs."""
        report = super().collect(iteration, attributes)
        spaces, _, arrays, _ = self.settings
        views = [arrays["counts"]]
        for name in carried_tables(spaces):
            views.append(arrays[name][-1])
        for name in MERGED:
            views.append(arrays[name].swapaxes(0, 1))
        own = [view[self.columns] for view in views]
        first = self.columns.start
        last = []
        for one in report.truncated:
            last.append(one._replace(environment=one.environment - first))
        said = replace(report, truncated=[])
        everyone = gather((own, said))
        parts, reports = zip(*everyone, strict=True)
        for view, *rows in zip(views, *parts, strict=True):
            view[:] = np.concatenate(rows)
        whole = merged([*reports])
        return replace(whole, truncated=last)


class MergedMeanStd(RunningMeanStd):
    def merge(self, count: int, mean: ndarray, variance: ndarray) -> None:
        """Merge the samples of all ranks."""
        own = (count, mean, variance)
        for moments in gather(own):
            super().merge(*moments)


class RankLearner(Learner):
    """A base of the learner's class."""

    def gradient(self, minibatch: Batch) -> Metrics:
        metrics = super().gradient(minibatch)
        numbers = [float(x) for x in metrics.values()]
        gradients = self.gradients
        both = torch.cat([gradients, gradients.new_tensor(numbers)])
        table = both.new_empty(distributed.get_world_size(), len(both))
        exchange(distributed.all_gather, [*table], both)
        means = table.mean(0)
        size = len(gradients)
        gradients.copy_(means[:size])
        values = means[size:].tolist()
        return dict(zip(metrics, values, strict=True))

    def _minibatches(self, batch: Batch, iteration: int) -> Iterator[Batch]:
        """Yield as many as all ranks have: agents may be absent."""
        names = batch.keys() & {"advantages", "present", "states"}
        some = {name: batch[name] for name in names}
        counted = super()._minibatches(some, iteration)
        own = sum(1 for _ in counted)
        count = min(gather(own))
        yield from islice(super()._minibatches(batch, iteration), count)


class RankRun(Run):
    """The tables are those of all environments, of which a rank fills its own columns."""

    def _learner_class(self) -> Any:
        kind = super()._learner_class()
        return type(kind.__name__, (RankLearner, kind), {})

    def start(self, folder: RunFolder) -> None:
        self.heard = self.signals  # by this rank
        super().start(folder)
        state = gather(self.state)[0]  # callbacks of rank 0 may have changed weights
        self.learner.load_state_dict(state)
        parts: Any = {
            "normalize_observation": self.normalize,
            "normalize_reward": self.normalize_reward,
        }
        for name, part in parts.items():
            statistics = MergedMeanStd()
            statistics.load_state_dict(select(name, state))
            part.statistics = statistics
        self.publish()
        self._agree()

    def collect(self) -> Rollout:
        self.whole = super().collect()
        columns = self.pool.columns
        tables = dict(self.whole.tables)
        for name in (*carried_tables(self.spaces), *STEPS):
            tables[name] = tables[name][:, columns]
        self.rollout = Rollout(tables, self.whole.report)
        rewards = self.normalize_reward
        rewards.returns = rewards.returns[columns]
        return self.rollout

    def end_iteration(self, metrics: Metrics) -> None:
        self.rollout = self.whole
        rewards = self.normalize_reward
        parts = gather(rewards.returns)
        rewards.returns = np.concatenate(parts)
        self.signals = self.heard  # an evaluation need not wait for the other ranks
        with suppress(Stopped):
            super().end_iteration(metrics)
        self._agree()

    def _agree(self) -> None:
        """Take over a signal to any rank, and what callbacks of rank 0 have changed."""
        weights = self.learner.weights.numpy(force=True)
        checksum = crc32(weights)
        names = flag_names("live")
        flags = {name: getattr(self.config, name) for name in names}
        decided = self.stop_reason, self.env_attributes, flags
        everyone = gather((self.heard.received, checksum, decided))
        received, checksums, decisions = zip(*everyone, strict=True)
        if len({*checksums}) > 1:
            raise TrainingError("the weights of ranks differ: continue with --resume")
        self.signals = StopSignals()  # that all ranks know of
        self.signals.received = next(filter(None, received), None)
        self.stop_reason, self.env_attributes, changed = decisions[0]
        if changed != flags:
            self.change(**changed)

    def save_state(self) -> str:
        return "" if distributed.get_rank() else super().save_state()
