"""Train one policy in several processes, called ranks, that torchrun starts:

    torchrun --standalone --nproc_per_node=2 main.py --env_name=CartPole-v1

Rank k of n steps its own num_envs / n environments, with the seeds and the noise that they have in
a single process. A minibatch is one of each rank, with the mean of their gradients and metrics.
Statistics and episodes are merged once a rollout, in all ranks alike.

Rank 0 reads the command line, owns the run's folder, logs, evaluates, saves and has all callbacks.
Callbacks that override on_batch or loss are in the other ranks, too, as a copy from the start of
the run. run.batch has the rows of a rank; run.rollout, after an iteration, all environments, but
only a rank's observations.

Once an iteration ranks decide together: a signal to any of them ends the run for all, and what
callbacks of rank 0 have said counts. After a signal they exit with code 0, so that torchrun
--max-restarts does not start again what somebody has stopped. A rank that fails says why, and the
others end without a word. Ranks exchange by gloo; several GPUs, each rank with its own, have not
been tried."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any
from zlib import crc32

import cloudpickle
import numpy as np
import torch
import torch.distributed.nn  # imported later, it would keep the group and its threads
from numpy import ndarray

from ppo.callbacks import Callback, overriding
from ppo.checkpoint import LAST, select
from ppo.config import Config, flag_names
from ppo.envs.normalize import NormalizeReward, RunningMeanStd
from ppo.envs.pool import Stopped, WorkerPool
from ppo.envs.worker import STEPS, LastObservation, Report, carried_tables, merged
from ppo.errors import ConfigError, Interrupted, PPOError
from ppo.folder import RunFolder
from ppo.learner import Learner
from ppo.policy import Evaluation
from ppo.process import StopSignals, available_cores, core_numbers, training_process
from ppo.rollout import Batch, Metrics, Rollout
from ppo.run import Run
from ppo.settings import Settings
from ppo.state import restore
from ppo.trainer import RunSummary, execute, prepare

distributed: Any = torch.distributed
TIMEOUT = timedelta(minutes=30)  # of the wait for a rank, which may be evaluating
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_PORT", "MASTER_ADDR")
TOLD = "told"  # in the store of all ranks: how many have failed
PER_STEP = ("actions", "terminations", "truncations")  # tables that all ranks need whole


class RankLost(PPOError):
    """Another rank has ended, or does not answer."""


def train(
    given: Mapping[str, Any], callbacks: Sequence[Callback], signals: StopSignals
) -> RunSummary:
    """Train as one of the ranks, with rank 0's settings and callbacks. Raises ConfigError if the
    environment variables do not say which, and what ppo.train raises; without a sentence if another
    rank has said one."""
    check_variables()
    keep_to_own_cores()
    with joined():
        summary, stopped = None, None
        try:
            summary = train_rank(given, callbacks, signals)
        except Interrupted as error:
            stopped = (str(error), error.signal)
        summary, stopped = first((summary, stopped))
        is_first = distributed.get_rank() == 0
    if not stopped:
        return summary
    sentence, number = stopped
    error = Interrupted(sentence if is_first else "", number)
    error.exit_code = 0
    raise error


def check_variables() -> None:
    """Raise ConfigError unless the environment says which rank this is, and where all meet."""
    values = {name: os.environ.get(name, "") for name in VARIABLES}
    address = values.pop("MASTER_ADDR")
    numbers = [int(x) if x.isdecimal() else -1 for x in values.values()]
    rank, size, port = numbers
    if address and 0 <= rank < size and port >= 0:
        return
    shown = ", ".join(f"{name}={os.environ.get(name, '')}" for name in VARIABLES)
    raise ConfigError(
        f"the environment has {shown}: start ranks by torchrun, which sets all of them, or unset "
        "them for a single process"
    )


def keep_to_own_cores() -> None:
    """Use this rank's share of the machine's cores."""
    size = available_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    first = size * int(os.environ.get("LOCAL_RANK", 0))
    cores = core_numbers()[first : first + size]
    if cores:
        os.sched_setaffinity(0, cores)


@contextmanager
def joined() -> Iterator[None]:
    """Be one of the ranks in this context. Where several fail, only the first error is told."""
    store, rank, size = exchange(next, distributed.rendezvous("env://"))
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    about = {"store": store, "rank": rank, "world_size": size, "timeout": TIMEOUT}
    exchange(distributed.init_process_group, backend, **about)
    try:
        yield
    except BaseException as error:
        count = 1
        with suppress(RuntimeError):  # the store may be lost, too
            count = store.add(TOLD, 1)
        if count == 1:
            raise
        told = PPOError("")
        told.exit_code = getattr(error, "exit_code", 1)
        raise told from error
    distributed.destroy_process_group()


def exchange(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call a function that waits for the other ranks. Raises RankLost."""
    try:
        return function(*arguments, **options)
    except RuntimeError as error:
        cause = str(error).partition("\n")[0].partition(". ")[0]
        raise RankLost(
            f"another rank has ended or does not answer ({cause}): go on with --resume"
        ) from error


def gather(value: Any) -> list[Any]:
    """Return the values of all ranks, in their order."""
    found: list[Any] = [None] * distributed.get_world_size()
    exchange(distributed.all_gather_object, found, cloudpickle.dumps(value))
    return [cloudpickle.loads(x) for x in found]


def first(value: Any) -> Any:
    """Return rank 0's value, in all ranks."""
    sent = [cloudpickle.dumps(value) if is_first() else None]
    exchange(distributed.broadcast_object_list, sent)
    return value if is_first() else cloudpickle.loads(sent[0])


def is_first() -> bool:
    return bool(distributed.get_rank() == 0)


def train_rank(
    given: Mapping[str, Any], callbacks: Sequence[Callback], signals: StopSignals
) -> RunSummary:
    """Do what ppo.trainer.run_training does in a single process."""
    about: Any = None
    if is_first():
        settings, callbacks, resumed, state = prepare(given, callbacks)
        check_num_envs(settings.spaces.config)
        learning = [x for x in callbacks if takes_part(x)]
        about = settings, learning, resumed, state
    settings, learning, resumed, state = first(about)
    spaces = settings.spaces
    config = spaces.config
    if config.device.startswith("cuda"):
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    num_threads = available_cores() if spaces.layout.images else 1
    each = config.num_envs // distributed.get_world_size()
    begin = each * distributed.get_rank()
    ids = range(begin, begin + each)
    with closing(RankPool(spaces, ids=ids)) as pool, training_process(num_threads):
        own = callbacks if is_first() else learning
        run = RankRun(settings, pool, own, AgreedSignals(signals))
        if resumed:
            restore(run, state, resumed / "checkpoints" / LAST)
        with open_folder(config, resumed) as folder:
            folder.write_json("config.json", {**config.to_json(), **run.extra_flags})
            return execute(run, folder)


def check_num_envs(config: Config) -> None:
    size = distributed.get_world_size()
    if config.num_envs % size:
        raise ConfigError(f"--num_envs={config.num_envs}: give a multiple of the {size} ranks")


def takes_part(callback: Callback) -> bool:
    """Return whether a callback takes part in gradient steps, and so in all ranks."""
    return bool(overriding([callback], "on_batch") or overriding([callback], "loss"))


def open_folder(config: Config, resumed: Path | None) -> RunFolder:
    """Open the run's folder in rank 0; the others only know its path."""
    folder = RunFolder(config, resumed) if is_first() else None
    path = first(folder and folder.path)
    return folder or OtherFolder(path)


class OtherFolder(RunFolder):
    """The run's folder, in which this rank neither reads nor writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"

    def __enter__(self) -> "OtherFolder":
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def note(self, sentence: str, details: str = "") -> None:
        pass

    def write_json(self, name: str, content: Any) -> None:
        pass


class AgreedSignals(StopSignals):
    """What ranks have agreed on is received; evaluations look at this rank's own signals."""

    def __init__(self, own: StopSignals) -> None:
        super().__init__()
        self.own = own

    def urgent(self) -> bool:
        return self.own.urgent()

    def any(self) -> bool:
        return self.own.any()


class RankPool(WorkerPool):
    """Step a rank's environments, and copy what other ranks report to this one's tables."""

    def begin(self, spaces: Any, shapes: Any, arrays: Any, make_actor: Any, on_loss: Any) -> None:
        on_loss = on_loss if is_first() else show
        super().begin(spaces, shapes, arrays, make_actor, on_loss)

    def collect(self, iteration: int, attributes: Any) -> Report:
        report = super().collect(iteration, attributes)
        others = self._share(replace(report, last=[]))
        return replace(merged(others), last=report.last)

    def call(self, *command: Any, only: Any = None) -> list[Any]:
        replies = super().call(*command, only=only)
        if command[0] != "restore":
            return replies
        return [reply for others in self._share(replies) for reply in others]

    def _share(self, said: Any) -> list[Any]:
        """Exchange what the state of the run needs of a rollout, and something to say."""
        arrays, _, spaces, _ = self.about
        views = [arrays[name][-1] for name in carried_tables(spaces)]
        views += [arrays[name].swapaxes(0, 1) for name in PER_STEP]
        views.append(arrays["counts"])
        own = [view[self.columns] for view in views]
        found = gather((self.columns, own, said))
        for columns, parts, _ in found:
            for view, part in zip(views, parts, strict=True):
                view[columns] = part
        return [x for *_, x in found]


def show(sentence: str, details: str = "") -> None:
    """Tell the user a sentence of a rank without a folder."""
    print(f"rank {distributed.get_rank()}: {sentence}", file=sys.stderr)


class SharedMeanStd(RunningMeanStd):
    """Moments of the samples of all ranks."""

    def merge(self, count: int, mean: ndarray, variance: ndarray) -> None:
        for moments in gather((count, mean, variance)):
            super().merge(*moments)


class RankReward(NormalizeReward):
    """Returns of all environments, by statistics of all; normalises the rewards of some columns."""

    def __init__(self, num_envs: int, gamma: float, columns: slice) -> None:
        super().__init__(num_envs, gamma)
        self.statistics = SharedMeanStd()
        self.columns = columns

    def update_and_scale(self, rewards: ndarray, dones: ndarray, acting: Any = None) -> ndarray:
        self.returns = self.returns[self.columns]
        scaled = super().update_and_scale(rewards, dones, acting)
        self.returns = np.concatenate(gather(self.returns))
        return scaled


class RankLearner(Learner):
    """Average gradients and metrics over ranks; a base of the learner's class in a run."""

    def gradient(self, minibatch: Batch) -> Metrics:
        metrics = super().gradient(minibatch)
        values = [float(x) for x in metrics.values()]
        both = torch.cat([self.gradients, self.gradients.new_tensor(values)])
        exchange(distributed.all_reduce, both)
        both /= distributed.get_world_size()
        size = len(self.gradients)
        self.gradients.copy_(both[:size])
        return dict(zip(metrics, both[size:].tolist(), strict=True))

    def update(
        self, batch: Batch, iteration: int, should_stop: Callable[[], bool] = bool
    ) -> Metrics:
        """Never stop in between, where the other ranks would wait. Buffers, as of batch norm, are
        rank 0's."""
        metrics = super().update(batch, iteration)
        for buffer in self.model.buffers():
            exchange(distributed.broadcast, buffer, 0)
        return metrics

    def _minibatches(self, batch: Batch, iteration: int) -> Iterator[Batch]:
        """Yield as many as the rank with the fewest has: agents may be absent."""
        needed = batch.keys() & {"advantages", "present", "states"}
        some = {name: batch[name] for name in needed}
        count = sum(1 for _ in super()._minibatches(some, iteration))
        fewest = min(gather(count))
        yield from islice(super()._minibatches(batch, iteration), fewest)


class RankRun(Run):
    """A run in one of the ranks."""

    signals: AgreedSignals

    def __init__(self, settings: Settings, pool: WorkerPool, *about: Any) -> None:
        super().__init__(settings, pool, *about)
        config = self.config
        self.columns = pool.columns
        self.normalize.statistics = SharedMeanStd(self.normalize.shift.shape)
        self.normalize_reward = RankReward(config.num_envs, config.gamma, pool.columns)

    def _learner_class(self) -> Any:
        kind = super()._learner_class()
        return type(kind.__name__, (RankLearner, kind), {})

    def start(self, folder: RunFolder) -> None:
        """Start as rank 0 does, with the weights that its callbacks have left."""
        super().start(folder)
        learned = [x.requires_grad for x in self.model.parameters()]
        state, learned = first((self.state, learned))
        if not is_first():
            self.learner.load_state_dict(state)
            statistics = select("normalize_observation", state)
            self.normalize.statistics.load_state_dict(statistics)
            for parameter, is_learned in zip(self.model.parameters(), learned, strict=True):
                parameter.requires_grad_(is_learned)
            torch.set_rng_state(torch.from_numpy(state["generator.cpu"]))
            self.publish()
        self._agree()

    def collect(self) -> Rollout:
        """Collect a rollout, and return a rank's columns of it."""
        self.whole = super().collect()
        tables = dict(self.whole.tables)
        for name in (*carried_tables(self.spaces), *STEPS):
            tables[name] = tables[name][:, self.columns]
        last = [self._in_columns(x) for x in self.whole.report.last]
        self.rollout = Rollout(tables, Report(last=last))
        return self.rollout

    def _in_columns(self, last: LastObservation) -> LastObservation:
        return last._replace(environment=last.environment - self.columns.start)

    def end_iteration(self, metrics: Metrics) -> None:
        self.rollout = self.whole
        with suppress(Stopped):  # in an evaluation: the others learn of the signal now
            super().end_iteration(metrics)
        self._agree()

    def _agree(self) -> None:
        """Take over what rank 0 has decided, and a signal to any rank. Raises RankLost unless all
        have the same weights."""
        live = {name: getattr(self.config, name) for name in flag_names("live")}
        weights = crc32(self.learner.weights.numpy(force=True))
        decided = (weights, self.stop_reason, self.env_attributes, live)
        everyone = gather((self.signals.own.received, *decided))
        received = [x[0] for x in everyone if x[0]]
        self.signals.received = received[0] if received else None
        if len({x[1] for x in everyone}) > 1:
            raise RankLost("the ranks' weights differ: go on with --resume, on equal machines")
        _, _, self.stop_reason, self.env_attributes, changed = everyone[0]
        if changed != live:
            self.change(**changed)

    def evaluate(self, episodes: int | None = None) -> Evaluation:
        if not is_first():
            return Evaluation()
        try:
            return super().evaluate(episodes)
        except Stopped:
            self.signals.received = self.signals.own.received
            raise

    def save_state(self) -> str:
        if is_first():
            return super().save_state()
        self.is_saved = True
        return ""
