"""Training: collect, estimate advantages, update, log, save."""

import os
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ppo.callbacks import Callback, make_callbacks, make_extras
from ppo.checkpoint import LAST, State, load
from ppo.config import Config, flag_names
from ppo.envs.pool import WorkerPool
from ppo.errors import Interrupted, Stopped
from ppo.extras import LAUNCHERS
from ppo.flags import AllFlags, checked
from ppo.folder import RunFolder, find_resumed
from ppo.loggers import make_loggers
from ppo.process import StopSignals, available_cores, training_process
from ppo.settings import Settings, settle

if TYPE_CHECKING:
    from ppo.policy import Evaluation
    from ppo.run import Run

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # else idle threads keep cores from other jobs


@dataclass(frozen=True)
class RunSummary:
    """The result of a run. checkpoint: path of the last one; reason: why the run ended early."""

    folder: str
    checkpoint: str
    evaluation: "Evaluation"
    steps: int
    seconds: float
    reason: str | None


def loop(run: "Run") -> None:
    """Train to the end, or until a signal or a callback ends the run (Schulman et al. 2017,
    algorithm 1). Raises Stopped after an urgent signal."""
    while not run.is_over and not run.signals.received:
        rollout = run.collect()  # one message to each worker; they write the shared tables
        batch = run.make_batch(rollout)  # advantages, by the weights that collected it
        metrics = run.update(batch)  # epochs of minibatches; publish the new weights
        run.end_iteration(metrics)  # callbacks log, evaluate, save and stop; take the state


def train(
    env: Any = None,
    config: Config | None = None,
    *,
    learner: Any = None,
    model: Any = None,
    callbacks: Any = (),
    **flags: Any,
) -> RunSummary:
    """Train a policy by PPO, to the end or until a signal.

    env: an id, a class or a function; config: replaces the tuned preset; learner: a subclass of
    Learner; model: a subclass of ActorCritic; flags: fields of Config, override config. Raises
    ConfigError, CheckpointError, RunInUse, TrainingError, SaveFailed, Interrupted, and what
    callbacks raise."""
    given: dict[str, Any] = {}
    if config:
        given = {name: getattr(config, name) for name in flag_names()} | {"preset": "none"}
    named = {"env_name": env, "model": model, "learner": learner}
    given |= {name: value for name, value in named.items() if value is not None}
    return run_training({**given, **flags}, callbacks)


def run_training(given: Mapping[str, Any], callbacks: Any = ()) -> RunSummary:
    with StopSignals() as signals:
        for variable, path in LAUNCHERS.items():
            if variable in os.environ:
                return resolve_name(path)(given, callbacks, signals)
        settings, callbacks, resumed, _ = prepare(given, callbacks)
        config = settings.spaces.config
        num_threads = config.threads
        if num_threads == "auto":
            has_large_matrices = settings.spaces.layout.images and config.device == "cpu"
            num_threads = available_cores() if has_large_matrices else 1
        with closing(WorkerPool(settings.spaces, signals.urgent)) as pool:
            from ppo.run import Run  # torch is imported while the workers start
            from ppo.state import restore

            with training_process(num_threads):
                run = Run(settings, pool, callbacks, signals)
                with RunFolder(config, resumed) as folder:
                    last = folder.checkpoints / LAST
                    if resumed:  # load it again: until now, another process may have gone on
                        restore(run, load(last), last)
                    if not (resumed and run.is_over):
                        folder.write_json("config.json", {**config.to_json(), **run.extra_flags})
                    return execute(run, folder)


def prepare(
    given: Mapping[str, Any], callbacks: Any
) -> tuple[Settings, list[Callback], Path | None, State]:
    """Return settings, callbacks with loggers, and the folder and state of a run that goes on."""
    values = checked(given, AllFlags())
    names = ("resume", "run_dir", "name")
    resumed = find_resumed(Config(**{name: values[name] for name in names if name in values}))
    state: State = {}
    if resumed:
        from ppo.state import CODE, check_code, check_fixed, saved_flags

        path = resumed / "checkpoints" / LAST
        state = load(path)
        saved = saved_flags(path, state, values)
        if "num_minibatches" in values and "batch_size" not in values:
            saved["batch_size"] = None
        check_fixed(path, state, values)
        check_code(path, state, values, CODE)
        values = {**saved, "preset": "none"}
    callbacks = [*make_callbacks(callbacks), *make_callbacks(values.get("callback", ()))]
    callbacks += make_extras(values, callbacks)
    settings = settle(values, callbacks)
    loggers = make_loggers(settings.spaces.config, settings.notes)
    return settings, [*callbacks, *loggers], resumed, state


def execute(run: "Run", folder: RunFolder) -> RunSummary:
    """Run the loop, save the last state whatever happens, evaluate, and write summary.json."""
    with suppress(Stopped):
        try:
            run.start(folder)
            loop(run)
        finally:
            run.close()
        if not run.signals.received:
            evaluation = run.finish()
    if received := run.signals.received:
        raise Interrupted(
            f"{received.name}: saved after step {run.state.get('step', 0):,}; continue with "
            f"--resume={folder.shown}",
            received,
        )
    summary = RunSummary(
        folder=str(folder.path),
        checkpoint=str(folder.checkpoints / LAST),
        evaluation=evaluation,
        steps=run.step,
        seconds=round(run.seconds, 3),
        reason=run.stop_reason or None,
    )
    folder.write_json("summary.json", asdict(summary))
    run.notify("on_end")
    return summary
