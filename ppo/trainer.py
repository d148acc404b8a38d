"""Training: collect, estimate advantages, update, log, save."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from warnings import catch_warnings

from ppo.callbacks.base import Callback, named_callbacks
from ppo.components import Components, MakeLearner, make_learner, prepare_run
from ppo.config.config import Config
from ppo.config.flags import Settings
from ppo.config.settings import RunSettings
from ppo.envs.env_factories import EnvLike, as_env_name
from ppo.errors import ConfigError, Interrupted, PPOError, SaveFailed
from ppo.guard import guard
from ppo.monitor import Monitor, all_callbacks
from ppo.peers import Peers, join_peers
from ppo.run.checkpoint import Checkpoints
from ppo.run.folder import RunFolder
from ppo.run.loggers.logger import Loggers, own_loggers
from ppo.run.reader import read_rows
from ppo.run.resume import resume, snapshot
from ppo.run.summary import RunSummary
from ppo.run.trusted_settings import run_settings
from ppo.system.clock import Clock
from ppo.system.hardware import within_gpu_memory
from ppo.system.process import freeze_garbage, ignore_harmless_warnings, restored_process
from ppo.system.signals import STOP, STOPPING, URGENT, StopSignals, Terminated


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
    config, peers), or its import path. Raises ConfigError, EnvironmentUnavailable or ModelMismatch
    before the first iteration, CheckpointError if there is nothing to resume, RunInUse; WorkerError
    if an environment fails too often, CallbackError, NonFinite, SaveFailed; Interrupted.
    """
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
    with STOP as stop, stop.raising(), ExitStack() as stack:
        enter = stack.enter_context
        enter(within_gpu_memory())
        with stop.cutting_short("ended the run before its first iteration: there is nothing new"):
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
            run = enter(RunFolder(config, parts.faults, settings.auto, peers.about))
            place = run.path / "checkpoints"
            checkpoints = enter(Checkpoints(place, run.event, config.keep_every))
            monitor = Monitor(parts, run, callbacks)
            if config.is_resumed:
                found += resume(parts, monitor, checkpoints, run)
            first = parts.iteration + 1
            rows = read_rows(run, parts.iteration)
            clock = Clock(earlier=float(rows[-1]["seconds"]) if rows else 0.0)
            notes = [*settings.notes, *found, f"run folder: {run.path}"]
            workers = enter(parts.make_pool(on_event=run.event))
            enter(stop.abandonable())
            loggers = enter(Loggers(config, run, notes, rows, own))
            checkpoints.keep(snapshot(parts, monitor))
        stop.at_once = peers.is_alone
        with _saving(parts, monitor, checkpoints, stop):
            with stop.raising(*URGENT):
                end = peers.share(partial(monitor.start, rows))
                parts.take_changes()
            for iteration in range(first, end + 1):
                run.iteration = iteration
                with stop.raising(*URGENT), stop.finishing():
                    if config.is_resumed and iteration == first:
                        monitor.note_lost_episodes(parts.restore_environments(workers))
                    clock.begin_iteration()
                    info = workers.collect(iteration)
                    clock.end_phase("collecting")
                    rollout = parts.finish_collect(iteration, info)
                    batch = parts.make_batch(rollout)
                    metrics = parts.update(rollout, batch)
                    clock.end_phase("learning")
                    reports = parts.gather_reports(info)
                with stop.raising(*URGENT):
                    learned = (rollout, batch, metrics, reports, clock)
                    decision = peers.share(partial(monitor.after_update, *learned))
                    parts.take_changes()
                is_stopped = stop.agree_to_stop(peers.gather) or decision.stop_reason
                is_last = is_stopped or iteration == config.iterations
                is_due = decision.is_save_due
                if is_due or is_last or peers.is_alone:  # several must exchange theirs
                    checkpoints.keep(snapshot(parts, monitor), decision.is_best)
                loggers.log(decision.metrics, decision.histograms)
                if is_due:
                    checkpoints.save()
                if is_last:
                    break
                if is_due:
                    monitor.note_checkpoint()
        finish = partial(monitor.finish, clock, loggers.show_progress)
        ending = f"training is over, saved in {run.path}: --resume={run.path} does the rest"
        stop.last_act = partial(_interrupted, stop, checkpoints, monitor, ending)
        with stop.raising(*STOPPING):
            summary = peers.share(finish)
        loggers.finish(summary)
        return summary


@contextmanager
def _saving(
    parts: Components, monitor: Monitor, checkpoints: Checkpoints, stop: StopSignals
) -> Iterator[None]:
    """Save the state after the last whole iteration, however the context is left; after a second
    Ctrl-C, the checkpoints' own context does. Raises Interrupted after a signal, SaveFailed if it
    cannot be saved."""
    checkpoints.save()
    folder = monitor.run.folder.path
    ending = f"stopped, saved in {folder}: --resume={folder} continues"
    stop.last_act = partial(_interrupted, stop, checkpoints, monitor, ending)
    stop.last_words = checkpoints.last_words
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
    if parts.step == checkpoints.last_step:  # else a signal cut off an iteration with its episodes
        monitor.note_checkpoint()
    checkpoints.finish()
    if stop.received:
        raise stop.obey()


def _interrupted(
    stop: StopSignals, checkpoints: Checkpoints, monitor: Monitor, ending: str
) -> PPOError:
    """Save the state after the last whole iteration and record the signal that ends the run, in any
    thread. Returns the error that says so, or SaveFailed."""
    assert stop.received
    checkpoints.save()
    try:
        checkpoints.finish()
    except SaveFailed as error:
        return error
    monitor.run.folder.event("signal", signal=stop.received.name)
    ending = f"after step {checkpoints.last_step}: {ending}"
    return Interrupted(stop.received, ending)
