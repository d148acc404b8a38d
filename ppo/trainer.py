"""Training: collect, estimate advantages, update, log, save."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from warnings import catch_warnings

from ppo.callbacks.base import Callback, named_callbacks
from ppo.components import Components, MakeLearner, make_learner, prepare_run
from ppo.config.config import Config, to_repeat
from ppo.config.flags import Settings, command_line
from ppo.config.settings import RunSettings
from ppo.envs.env_factories import EnvLike, as_env_name
from ppo.envs.pool import WorkerPool
from ppo.errors import ConfigError, Interrupted, PPOError, SaveFailed
from ppo.guard import guard
from ppo.monitor import Learned, Monitor, all_callbacks
from ppo.peers import Peers, join_peers
from ppo.run.folder import RunFolder
from ppo.run.loggers.logger import Loggers, own_loggers
from ppo.run.reader import read_rows
from ppo.run.resume import resume, snapshot
from ppo.run.saving import Checkpoints
from ppo.run.summary import RunSummary
from ppo.run.trusted_settings import run_settings
from ppo.system.clock import Clock
from ppo.system.hardware import within_gpu_memory
from ppo.system.imports import file_being_imported
from ppo.system.process import (
    freeze_garbage,
    ignore_harmless_warnings,
    in_one_thread,
    restored_process,
)
from ppo.system.signals import STOP, STOPPING, URGENT, Terminated


def learn(parts: Components, workers: WorkerPool, iteration: int, clock: Clock) -> Learned:
    """Do an iteration of PPO (Schulman et al. 2017, algorithm 1)."""
    clock.begin_iteration()
    info = workers.collect(iteration, parts.training_attributes)
    clock.end_phase("collecting")
    rollout = parts.finish_collect(iteration, info)
    batch = parts.make_batch(rollout)
    metrics = parts.update(rollout, batch)
    clock.end_phase("learning")
    return Learned(rollout, batch, metrics, parts.gather_reports(info))


@dataclass
class Training:
    """The loop of a run, all of whose parts have been made."""

    parts: Components
    workers: WorkerPool
    monitor: Monitor
    checkpoints: Checkpoints
    loggers: Loggers
    clock: Clock

    def run(self, end: int) -> None:
        """Train to the end of this iteration, or until a signal or a callback ends the run."""
        parts = self.parts
        first = parts.iteration + 1
        for iteration in range(first, end + 1):
            self.monitor.run.folder.iteration = iteration
            if parts.config.is_resumed and iteration == first:
                with STOP.raising(*URGENT), STOP.finishing():
                    self.monitor.note_lost_episodes(parts.restore_environments(self.workers))
            if not self.iterate(iteration):
                break

    def iterate(self, iteration: int) -> bool:
        """Learn, log, and save what is due; return whether the run goes on."""
        parts, peers, checkpoints = self.parts, self.parts.peers, self.checkpoints
        with STOP.raising(*URGENT), STOP.finishing():
            learned = learn(parts, self.workers, iteration, self.clock)
        with STOP.raising(*URGENT):
            decide = partial(self.monitor.after_update, learned, self.clock)
            decision = peers.call_in_first(decide)
            parts.take_changes()
        is_stopped = STOP.agree_to_stop(peers.gather) or decision.stop_reason
        goes_on = not is_stopped and iteration < parts.config.iterations
        # Whatever ends the run later, this can be saved then; several processes exchange theirs for
        # it, which takes time.
        if decision.is_save_due or not goes_on or peers.is_alone:
            checkpoints.remember(snapshot(parts, self.monitor), decision.is_best)
        self.loggers.log(decision.metrics, decision.histograms)
        if decision.is_save_due:
            checkpoints.save()
            if goes_on:
                self.monitor.note_checkpoint()
        return goes_on


@in_one_thread("train")
@restored_process()
def train(
    env: EnvLike | Config,
    config: Config | None = None,
    *,
    eval_env: EnvLike | None = None,
    learner: str | MakeLearner = "auto",
    callbacks: Sequence[Callback] = (),
    **flags: Any,
) -> RunSummary:
    """Train a policy by PPO (Schulman et al. 2017, algorithm 1), to the end or until a signal, and
    leave this process as it was.

    Returns the content of summary.json, and the path of the last checkpoint. env: an id, a class or
    a function, or the Config; eval_env: the same, for evaluations. config: tuned values by default;
    flags: of Config, take precedence. learner: a subclass of Learner, what makes one from (model,
    config, peers), or its import path. Raises ConfigError, also if another thread of this process
    trains, EnvironmentUnavailable or ModelMismatch before the first iteration, CheckpointError if
    there is nothing to resume, RunInUse; WorkerError if an environment fails too often,
    CallbackError, NonFinite, SaveFailed; Interrupted.
    """
    if file := file_being_imported():
        raise ConfigError(
            f"{file} trains as it is imported: put its calls of train below a line "
            'if __name__ == "__main__":'
        )
    values: Settings = {**flags}
    if "callback" in values:
        raise ConfigError("callback is for the command line: from Python give callbacks=[...]")
    make: MakeLearner = make_learner
    if isinstance(learner, type):
        make = partial(make_learner, own=learner)
    elif callable(learner):
        make = learner
    elif learner != "auto":
        values["learner"] = learner
    if eval_env is not None:
        values["eval_env"] = as_env_name(eval_env)
    if isinstance(env, Config) and config:
        raise ConfigError("train takes one Config: give the environment first, or only the Config")
    if isinstance(env, Config):
        config, env = env, env.env_name
    values["env_name"] = as_env_name(env)
    given = replace(config, **values) if config else values
    with join_peers() as peers:
        return run(partial(run_settings, given), peers, make, callbacks)


def run(
    find_settings: Callable[[], RunSettings],
    peers: Peers,
    make_learner: MakeLearner = make_learner,
    callbacks: Sequence[Callback] = (),
) -> RunSummary:
    """Train with settings; the process is changed for it. Returns and raises as train does."""
    with STOP, STOP.raising(), ExitStack() as stack:
        enter = stack.enter_context
        enter(within_gpu_memory())
        with STOP.cutting_short("ended the run before its first iteration: there is nothing new"):
            enter(closing(guard()))
            enter(catch_warnings())
            ignore_harmless_warnings()
            guard().start()
            settings = find_settings()
            config = settings.config
            own_callbacks = named_callbacks(config)
            own = own_loggers(config)
            parts, found = prepare_run(settings, peers, make_learner)
            freeze_garbage()
            if not peers.is_first:
                return peers.follow(parts)
            callbacks = all_callbacks(parts, [*callbacks, *own_callbacks])
            folder = enter(RunFolder(config, parts.faults, settings.auto, peers.about))
            place = folder.path / "checkpoints"
            checkpoints = enter(Checkpoints(place, folder.event, config.keep_every))
            monitor = Monitor(parts, folder, callbacks)
            if config.is_resumed:
                found += resume(parts, monitor, checkpoints, folder)
            rows = read_rows(folder, parts.iteration)
            clock = Clock(earlier=float(rows[-1]["seconds"]) if rows else 0.0)
            notes = [*settings.notes, *found, f"run folder: {folder.path}"]
            workers = enter(parts.make_pool(on_event=folder.event))
            enter(STOP.abandonable())
            loggers = enter(Loggers(config, folder, notes, rows, own))
            checkpoints.remember(snapshot(parts, monitor))
        STOP.at_once = peers.is_alone
        training = Training(parts, workers, monitor, checkpoints, loggers, clock)
        with _saving(training):
            with STOP.raising(*URGENT):
                end = peers.call_in_first(partial(monitor.start, rows))
                parts.take_changes()
            training.run(end)
        ending = f"training is over, saved in {_saved_in(training)} does the rest"
        STOP.last_act = partial(_interrupted, training, ending)
        with STOP.raising(*STOPPING):
            finish = partial(monitor.finish, clock, loggers.show_progress)
            summary = peers.call_in_first(finish)
        loggers.finish(summary)
        return summary


@contextmanager
def _saving(training: Training) -> Iterator[None]:
    """Save the state after the last whole iteration, however the context is left; after a second
    Ctrl-C, the checkpoints' own context does. Raises Interrupted after a signal, SaveFailed if it
    cannot be saved."""
    monitor, checkpoints = training.monitor, training.checkpoints
    checkpoints.save()
    ending = f"stopped, saved in {_saved_in(training)} continues"
    STOP.last_act = partial(_interrupted, training, ending)
    STOP.last_words = checkpoints.last_words
    try:
        yield
    except Terminated:
        pass
    except KeyboardInterrupt:
        raise
    except BaseException:  # an environment or a callback may have one of its own
        checkpoints.save()
        checkpoints.wait()
        raise
    checkpoints.save()
    if (
        training.parts.step == checkpoints.last_step
    ):  # else a signal cut off an iteration with its episodes
        monitor.note_checkpoint()
    checkpoints.finish()
    if STOP.received:
        raise STOP.obey()


def _saved_in(training: Training) -> str:
    """Return the folder of a run, and the command that resumes it, or the call from Python."""
    folder = training.monitor.run.folder.path
    repeated = to_repeat(training.parts.settings.given, Config.names(imports=True))
    named = {name: x for name, x in repeated.items() if not str(x).startswith("<")}
    if STOP.is_kept:  # by a command
        return f"{folder}: {command_line(resume=folder, **named)}"
    arguments = [f"{name}={x!r}" for name, x in {"resume": str(folder), **named}.items()]
    return f"{folder}: train({', '.join(['...', *arguments])})"


def _interrupted(training: Training, ending: str) -> PPOError:
    """Save the state after the last whole iteration and record the signal that ends the run, in any
    thread. Returns the error that says so, or SaveFailed."""
    assert STOP.received
    checkpoints = training.checkpoints
    checkpoints.save()
    try:
        checkpoints.finish()
    except SaveFailed as error:
        return error
    training.monitor.run.folder.event("signal", signal=STOP.received.name)
    ending = f"after step {checkpoints.last_step}: {ending}"
    return Interrupted(STOP.received, ending)
