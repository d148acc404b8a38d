"""Tune hyperparameters with Optuna."""

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from rich.live import Live

from ppo.commands.train import configure
from ppo.config.config import Config
from ppo.config.flags import (
    DURATION,
    Auto,
    Count,
    Flags,
    Settings,
    as_arguments,
    command_line,
    parse_flags,
    run_flag,
    seconds_of,
)
from ppo.config.learning_flags import AlgorithmFlags, EnvironmentFlags, NetworkFlags
from ppo.config.settings import kind_of
from ppo.envs.probe import Spaces
from ppo.errors import CheckpointError, ConfigError
from ppo.extras.tools import EXTENSION
from ppo.extras.tools.flags import SeedsFlags
from ppo.extras.tools.parallel_runs import Job, RunFailed, run_jobs, start_run, wait_for
from ppo.extras.tools.tune.space import (
    NOT_SEARCHED,
    default_space,
    draw,
    fitting,
    parse_space,
)
from ppo.guard import guard
from ppo.run.intervals import interquartile_mean
from ppo.run.loggers.console import NonExitingConsole
from ppo.run.reader import RETURN, RUN_SUMMARY, SUMMARY, read_content, read_run
from ppo.system.files import folder_name, new_file, write_json
from ppo.system.hardware import available_cores
from ppo.system.imports import extra
from ppo.system.output import discard

with extra("tune"):
    import optuna
    from optuna.trial import Trial, TrialState

from ppo.extras.tools.tune.shared_study import SharedStudy
from ppo.extras.tools.tune.study import best_trials, describe, write_plots

REPORTS = 10  # equal parts of a run: its return is reported to the pruner after all but the last
SECONDS_BETWEEN_REPORTS = 3
OUTPUT = "output.txt"  # what a trial's runs print
TERMINATED = 143  # exit code after SIGTERM
TRIAL_FLAGS = {"seeds": 1, "resume": "auto", "report": False}
# Flags that may change when a study is continued.
NOT_PART_OF_STUDY = {"run_dir", "name", "num_workers", "debug"}


class TuneFlags(Flags):
    """Hyperparameter search."""

    space: str | Auto = run_flag(
        "auto",
        "Search space, such as 'learning_rate=linear:log(1e-4,3e-3) gamma=range(0.9,1) "
        "num_steps=128|512'; auto: the default of the environment's family.",
    )
    trials: Count = run_flag(50, "Number of trials, each of --seeds runs.", common=True)
    jobs: Count | Auto = run_flag(
        "auto", "Number of parallel runs, by default each in one process; auto: one per core."
    )
    budget: str | None = run_flag(
        None, "Time after which no further trial starts; none: no limit.", **DURATION
    )
    score: Literal["return", "steps", "seconds"] = run_flag(
        "return",
        "Objective: the highest return of the evaluation, or the fewest steps or seconds until "
        "--stop_when; a run that never meets it counts as twice --total_steps or --max_time.",
    )
    pruner: Literal["median", "none"] = run_flag(
        "median",
        "End a trial early if its return is below the median of the others at the same step; not "
        "with --score=seconds.",
    )
    storage: str | None = run_flag(
        None,
        "URL of a database by which several machines share the study; none: a file in its folder.",
    )
    write_preset: str | None = run_flag(
        None, "JSON file to write the best values to, for --preset; none: no file."
    )


class Tune(Config, TuneFlags):
    """All flags of the command."""


def tune(arguments: Sequence[str]) -> None:
    """Search as the command line says, or continue the study that is in the folder.

    Raises ConfigError, also if the study was begun with other flags or no trial has succeeded,
    EnvironmentUnavailable or WorkerError for the environment, Interrupted after a signal.
    """
    given = parse_flags(arguments, Tune, "tune [ENV]", about=EXTENSION.commands["tune"].about)
    own = TuneFlags(**{name: given.pop(name) for name in TuneFlags.names() if name in given})
    given, settings = configure(as_arguments({"num_workers": 0, **given}))
    config = settings.given
    if own.write_preset:
        new_file("--write_preset=", own.write_preset, [".json"])
    ends = vars(config)  # whose flags of stopping are those of another extra
    if own.score != "return" and not ends.get("stop_when"):
        raise ConfigError(f"--score={own.score}: give --stop_when as well, which ends a run")
    if own.score == "seconds" and not ends.get("max_time"):
        raise ConfigError("--score=seconds: give --max_time as well, for a run that does not learn")
    if config.resume:
        raise ConfigError("--resume: leave it out, the same command continues a study")
    guard().close()
    for note in settings.notes:
        print(note)
    num_workers = int(settings.config.num_workers)
    jobs = available_cores() // max(1, num_workers) if own.jobs == "auto" else own.jobs
    Search(own, given, config, settings.spaces).run(max(1, jobs))


class Search:
    """Run the trials of a study, each with one run per seed, and show the results.

    own: the flags of the search; given, config: the other flags, and the config they lead to;
    spaces: those of the environment. Raises ConfigError for an unusable space or study."""

    def __init__(self, own: TuneFlags, given: Settings, config: Config, spaces: Spaces) -> None:
        self.own = own
        self.given = given
        self.config = config
        name = folder_name(config.name or f"tune-{config.env_name}")
        self.folder = Path(config.run_dir or f"runs/{name}").absolute()
        space = default_space(kind_of(spaces), given) if own.space == "auto" else own.space
        self.space = fitting(parse_space(space, given), config)
        self.sign = 1 if own.score == "return" else -1  # of scores to maximise, to minimise
        self.console = NonExitingConsole(highlight=False, markup=False, soft_wrap=True)
        begun_with = {name: str(x) for name, x in given.items() if name not in NOT_PART_OF_STUDY}
        self.shared = SharedStudy(
            self.folder,
            own.storage,
            self.sign > 0,
            own.pruner == "median" and own.score != "seconds",
            {**begun_with, "space": space, "score": own.score},
        )
        self.study = self.shared.study

    def run(self, jobs: int) -> None:
        """Run all trials that are left, with jobs runs at once; print the best flags, write plots.

        Raises ConfigError if no trial has succeeded, Interrupted after a signal, RunFailed if
        SIGTERM has ended a run."""
        deadline = time.monotonic() + seconds_of(self.own.budget or "9999d")
        with Live(console=self.console, auto_refresh=False) as self.live:
            trials = iter(partial(self._next_trial, deadline), None)
            ending = "stopped the runs of the study: the same command continues it"
            run_jobs(map(self._run_trial, trials), jobs, ending)
        try:
            best = self.study.best_trial
        except ValueError:
            raise ConfigError(f"no trial of the study in {self.folder} has succeeded yet") from None
        flags = best.user_attrs["flags"]
        settings = {name: x for name, x in self.given.items() if name not in NOT_PART_OF_STUDY}
        print(f"\nbest: trial {best.number}, {self.own.score} {best.value:,.4g}")
        print(command_line(**{**settings, **flags}))
        if self.own.write_preset:
            preset = preset_of(replace(self.config, **flags))
            write_json(Path(self.own.write_preset), preset, is_new=True)
        with self.shared.locked():
            write_plots(self.study, self.folder / "study.html")
        print(f"plots: {self.folder / 'study.html'}")

    def _next_trial(self, deadline: float) -> Trial | None:
        """Begin a trial; return None once the time or the number of trials is used up."""
        if time.monotonic() > deadline:
            return None
        return self.shared.begin_trial(self.own.trials)

    def _run_trial(self, trial: Trial) -> Job:
        """Train with each seed; record the interquartile mean of the scores in the study. Raises
        RunFailed if SIGTERM has ended a run."""
        flags = draw(self.space, trial, self.config)
        if "num_minibatches" in flags:
            flags["batch_size"] = "none"  # a preset's would override num_minibatches
        trial.set_user_attr("flags", flags)
        scores: list[float] = []
        value, state = None, TrialState.FAIL
        try:
            config = replace(self.config, **flags)
            for seed in range(config.seed, config.seed + SeedsFlags.of(config).seeds):
                folder = self.shared.path(trial.number) / f"s{seed}"
                yield from self._train(trial, {**flags, "seed": seed}, folder, config.total_steps)
                scores.append(self._score(read_content(folder / SUMMARY, RUN_SUMMARY), config))
            value, state = float(interquartile_mean(scores)), TrialState.COMPLETE
        except optuna.TrialPruned:
            state = TrialState.PRUNED
        except (ConfigError, CheckpointError) as error:  # a contradiction, or a damaged summary
            trial.set_user_attr("error", str(error))
        except RunFailed as failure:
            if failure.exit_code == TERMINATED:
                raise
            trial.set_user_attr("error", f"{failure}, see {OUTPUT} above it")
        self._show(describe(self.shared.end_trial(trial, value, state)))

    def _show(self, line: str) -> None:
        """Print a line, and redraw the table of the best trials below it."""
        try:
            self.console.print(line)
            self.live.update(best_trials(self.study, self.own.trials), refresh=True)
        except (OSError, EOFError):  # nobody reads the output any more
            discard(sys.stdout)

    def _train(self, trial: Trial, flags: Settings, folder: Path, total_steps: int) -> Job:
        """Train one run, or continue it, unless it has ended. Raises RunFailed, TrialPruned."""
        if (folder / SUMMARY).exists():
            return
        with (folder.parent / OUTPUT).open("ab") as output:
            settings = {**self.given, **flags, **TRIAL_FLAGS, "run_dir": folder}
            run = start_run(settings, stdout=output, stderr=output)
        waiting = wait_for(run, folder)
        next_report = 0.0
        for process in waiting:
            yield process
            start = time.monotonic()
            if start < next_report:
                continue
            self._report(trial, folder, total_steps)
            now = time.monotonic()
            next_report = now + max(SECONDS_BETWEEN_REPORTS, 20 * (now - start))
            if trial.should_prune():
                run.terminate()
                with suppress(RunFailed):
                    yield from waiting
                raise optuna.TrialPruned

    def _report(self, trial: Trial, folder: Path, total_steps: int) -> None:
        """Report a run's return after each tenth of its steps but the last.

        Reports are numbered through all seeds of a trial. The pruner compares the best of them so
        far with the median of other trials' reports that have the number of the latest one."""
        try:
            metrics = read_run(folder).metrics
        except ConfigError:  # it has not finished an iteration yet
            return
        steps = metrics["step"]
        first = REPORTS * (int(folder.name[1:]) - self.config.seed)
        for part in range(1, REPORTS):
            row = np.searchsorted(steps, part * total_steps / REPORTS)
            if row < len(steps) and np.isfinite(value := metrics[RETURN][row]):
                trial.report(self.sign * float(value), first + part)  # repeated ones are ignored

    def _score(self, summary: Settings, config: Config) -> float:
        """Return the score of a run that has ended, as --score defines it. Raises ConfigError if
        that is a return and no episode has ended."""
        if self.own.score == "return":
            evaluation = summary.get("evaluation") or {}
            for value in (evaluation.get("mean"), summary.get("mean_return")):
                if value is not None:
                    return value
            raise ConfigError("--total_steps: give more, for no episode has ended")
        if str(summary.get("stopped")).startswith(str(vars(config)["stop_when"])):
            return summary[self.own.score]
        if self.own.score == "steps":
            return 2 * config.total_steps
        return 2 * seconds_of(vars(config)["max_time"])


def preset_of(config: Config) -> Settings:
    """Return the values of a config that belong in a preset: the flags of environment, network and
    algorithm that differ from their defaults."""
    plain = Config.defaults()
    kinds = (AlgorithmFlags, NetworkFlags, EnvironmentFlags)
    names = [name for kind in kinds for name in kind.names() if name not in NOT_SEARCHED]
    settings = config.__getstate__()
    return {name: settings[name] for name in names if settings[name] != plain[name]}
