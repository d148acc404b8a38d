"""Training: collect, estimate advantages, update, log, save."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ppo.callbacks import Callback, RegularCheckpoints, RegularEvaluations
from ppo.checkpoint import LAST, load
from ppo.config import Config, flag_names
from ppo.envs.pool import Stopped
from ppo.errors import ConfigError, Interrupted
from ppo.evaluation import Evaluation
from ppo.flags import checked
from ppo.folder import RunFolder, existing_run
from ppo.imports import import_class
from ppo.learner import Learner
from ppo.loggers import make_loggers
from ppo.process import available_cores, training_process
from ppo.run import Run
from ppo.settings import Settings, settle
from ppo.signals import StopSignals
from ppo.state import restore, saved_flags


@dataclass(frozen=True)
class RunSummary:
    """What a run came to. checkpoint: the path of its last one; reason: why it ended early."""

    folder: str
    checkpoint: str
    evaluation: Evaluation
    steps: int
    seconds: float
    reason: str | None


def loop(run: Run) -> None:
    """Train to the end, or until a signal or a callback ends the run (Schulman et al. 2017,
    algorithm 1). Raises Stopped after an urgent signal."""
    while (
        run.iteration < run.config.iterations and not run.stop_reason and not run.signals.received
    ):
        rollout = run.collect()  # one message to each worker; they write the shared tables
        batch = run.make_batch(rollout)  # advantages, under the weights that collected it
        metrics = run.update(batch)  # epochs of minibatches; publish the new weights
        run.end_iteration(metrics)  # callbacks log, evaluate, save and stop; the state is taken


def train(
    env: Any = None,
    config: Config | None = None,
    *,
    learner: Any = None,
    model: Any = None,
    callbacks: Sequence[Callback] = (),
    **flags: Any,
) -> RunSummary:
    """Train a policy by PPO, to the end or until a signal, and leave this process as it was.

    env: an id, a class or a function; config: settings in place of tuned ones; learner: a subclass
    of Learner; model: a subclass of ActorCritic; callbacks: objects; flags: of Config, take
    precedence. Raises ConfigError before the first iteration, CheckpointError if there is nothing
    to resume, RunInUse, TrainingError, SaveFailed, Interrupted, and what callbacks raise."""
    given: dict[str, Any] = {}
    if config:
        given = {name: getattr(config, name) for name in flag_names()} | {"preset": "none"}
    given |= {"env_name": env} if env is not None else {}
    given |= {"model": model} if model is not None else {}
    given |= {"learner": learner} if learner is not None else {}
    return run_training({**given, **flags}, callbacks)


def run_training(given: Mapping[str, Any], callbacks: Sequence[Callback] = ()) -> RunSummary:
    """Train with flags, as values or texts. Returns and raises as train does."""
    values = checked(given, [Config])
    path = resumed_checkpoint(values)
    state: dict[str, Any] = {}
    if path:
        state = load(path)
        values = checked(saved_flags(path, state, values, to_train=True), [Config])
        values["preset"] = "none"
    own = [import_class(x, "callback", Callback)() for x in values.get("callback", ())]
    callbacks = [*callbacks, *own]
    settings = settle(values, callbacks)
    config = settings.config
    has_large_matrices = bool(settings.spaces.layout.images) and config.device == "cpu"
    num_threads = available_cores() if has_large_matrices else 1
    with StopSignals() as signals, training_process(num_threads), RunFolder(config) as folder:
        every = [
            RegularCheckpoints(),
            RegularEvaluations(),
            *callbacks,
            *make_loggers(config, settings.notes),
        ]
        run = Run(settings, folder, every, signals, own_learner(config))
        if path:
            restore(run, state, path)
        else:
            folder.write_json("config.json", config.to_json())
        return execute(run, settings)


def execute(run: Run, settings: Settings) -> RunSummary:
    """Run the loop, save the last state whatever happens, evaluate, and write summary.json."""
    try:
        run.start()
        loop(run)
    except Stopped:
        pass
    finally:
        run.close()
    _raise_if_interrupted(run)
    try:
        evaluation = run.evaluate()
    except Stopped:
        _raise_if_interrupted(run)
    summary = RunSummary(
        folder=str(run.folder.path),
        checkpoint=str(run.checkpoints.last),
        evaluation=evaluation,
        steps=run.step,
        seconds=round(run.seconds, 3),
        reason=run.stop_reason or None,
    )
    run.folder.write_json("summary.json", asdict(summary))
    run.notify("on_end")
    return summary


def _raise_if_interrupted(run: Run) -> None:
    received = run.signals.received
    if received:
        raise Interrupted(
            f"{received.name}: saved after step {run.state['step']:,}; go on with "
            f"--resume={run.folder.path}",
            received,
        )


def own_learner(config: Config) -> Any:
    """Return the class of --learner, None for a built-in one. Raises ConfigError."""
    if config.learner == "auto":
        return None
    if isinstance(config.learner, str):
        return import_class(config.learner, "learner", Learner)
    return config.learner


def resumed_checkpoint(values: Mapping[str, Any]) -> Path | None:
    """Return the checkpoint to go on from, None for a new run. Raises ConfigError if --resume names
    no run."""
    resume = values.get("resume")
    if resume is None:
        return None
    if resume != "auto":
        return existing_run(resume) / "checkpoints" / LAST
    name = values.get("run_dir") or (values.get("name") and f"runs/{values['name']}")
    if not name:
        raise ConfigError("--resume=auto needs --run_dir or --name, which tell what to resume")
    path = Path(name) / "checkpoints" / LAST
    return path if path.exists() else None
