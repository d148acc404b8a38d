"""Search for flags by which an environment is learned better, or sooner."""

import math
import os
import shlex
import socket
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from rich.live import Live

from ppo.analysis.statistics import interquartile_mean
from ppo.commands.shared import new_file
from ppo.commands.side_by_side import Job, RunFailed, run_jobs, start_run, wait_for
from ppo.commands.train import configure
from ppo.config.config import Config
from ppo.config.flags import Auto, Count, Flags, Settings, as_arguments, parse_flags, run_flag
from ppo.config.run_flags import DURATION, seconds_of
from ppo.config.space import SETTLED, default_space, parse_space
from ppo.errors import ConfigError
from ppo.run.loggers.console import PatientConsole
from ppo.run.reader import RETURN, read_run
from ppo.system.files import folder_name, lock_file, read_json, write_json
from ppo.system.hardware import available_cores

try:
    import optuna
    from optuna.pruners import MedianPruner, NopPruner
    from optuna.samplers import TPESampler
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import Trial, TrialState

    from ppo.analysis.study import best_trials, describe, write_page
except ImportError:
    raise ConfigError("ppo tune needs Optuna: pip install 'optuna>=4'") from None

REPORTS = 10  # of a run's return to the pruner, each after as many steps
SECONDS_BETWEEN_REPORTS = 3
HOST = socket.gethostname()
OUTPUT = "output.txt"  # what a trial's runs print
STOPPED_BY_SIGNAL = (129, 130, 143)  # exit codes
OF_A_TRIAL = {"seeds": 1, "resume": "auto", "report": False}
NOT_ASKED = {"run_dir", "name", "num_workers", "debug"}  # may change when a study is continued


class TuneFlags(Flags):
    """Search."""

    space: str | Auto = run_flag(
        "auto",
        "Flags to vary, such as 'learning_rate=linear:log(1e-4,3e-3) gamma=range(0.9,1) "
        "num_steps=128|512'; auto are those that are usual for such an environment.",
    )
    trials: Count = run_flag(50, "Number of trials in the study, each of --seeds runs.")
    jobs: Count | Auto = run_flag(
        "auto", "Number of runs at once; auto is one per core, each in its one process."
    )
    budget: str | None = run_flag(None, "Time after which no further trial begins.", **DURATION)
    score: Literal["return", "steps", "seconds"] = run_flag(
        "return",
        "What is best: the greatest return of the evaluation, or the fewest steps or seconds until "
        "--stop_when; twice as many count where a run ends without.",
    )
    pruner: Literal["median", "none"] = run_flag(
        "median",
        "Which trials end early: those that learn worse than the median of others, or none.",
    )
    storage: str | None = run_flag(
        None,
        "URL of a database by which machines share the study; none is a file in its folder.",
    )
    write_preset: str | None = run_flag(
        None, "File, ending in .json, to write the best values to, for --preset."
    )


class Tune(TuneFlags, Config):
    """All flags of the command."""


def tune(arguments: Sequence[str]) -> None:
    """Search as a command line says, or continue the study that is in its folder.

    Raises ConfigError, also if the study was begun with other flags; RunFailed if a run refuses
    its flags, Interrupted.
    """
    given = parse_flags(arguments, Tune, "tune")
    own = TuneFlags(**{name: given.pop(name) for name in TuneFlags.names() if name in given})
    given, config, notes = configure(as_arguments(given))
    if own.write_preset:
        new_file("--write_preset=", own.write_preset, [".json"])
    if own.score != "return" and not config.stop_when:
        raise ConfigError(f"--score={own.score}: give --stop_when as well, which ends a run")
    if config.resume:
        raise ConfigError("--resume: leave it out, the same command continues a study")
    print(*notes, sep="\n")
    Search(own, given, config).run()


class Search:
    """Play the trials of an Optuna study: runs, each in a folder of its own.

    A trial whose process was killed is continued by the next process of the same folder, since its
    lock is free then.
    """

    def __init__(self, own: TuneFlags, given: Settings, config: Config) -> None:
        self.own = own
        self.config = config
        self.given = given
        name = folder_name(config.name or f"tune-{config.env_name}")
        self.folder = Path(config.run_dir or f"runs/{name}").absolute()
        text = default_space(config) if own.space == "auto" else own.space
        self.space = parse_space(text, given)
        self.sign = 1 if own.score == "return" else -1  # what is greatest is best, or least
        self.locks: dict[int, int] = {}  # of this process's trials
        self.reported: set[tuple[int, int]] = set()  # numbers of trials and of reports
        self.study = self._open_study()
        asked = {name: str(value) for name, value in given.items() if name not in NOT_ASKED}
        asked |= {"space": text, "score": own.score}
        if self.study.user_attrs.get("asked", asked) != asked:
            raise ConfigError(
                f"the study in {self.folder} was begun with other flags: give those, or begin "
                "another by --name"
            )
        self.study.set_user_attr("asked", asked)

    def run(self) -> None:
        """Play all trials that are left, and show and write the best."""
        num_workers = int(self.given.get("num_workers", 0))
        at_once = self.own.jobs
        if at_once == "auto":
            at_once = max(1, available_cores() // max(1, num_workers))
        deadline = time.monotonic() + seconds_of(self.own.budget or "365d")
        with Live(console=PatientConsole(highlight=False, markup=False)) as self.live:
            trials = iter(lambda: self._next_trial(deadline), None)
            ending = "stopped the runs of the study: the same command continues it"
            run_jobs(map(self._play, trials), int(at_once), ending)
        try:
            best = self.study.best_trial
        except ValueError:
            raise ConfigError(f"no trial of the study in {self.folder} was successful") from None
        flags = best.user_attrs["flags"]
        print(f"best: trial {best.number}, {self.own.score} {best.value:,.4g}")
        print(shlex.join(["python", "main.py", *as_arguments({**self.given, **flags})]))
        if self.own.write_preset:
            settings = replace(self.config, **flags).__getstate__()
            names = [x for x in Config.names(scope="training") if x not in SETTLED]
            changed = {x: settings[x] for x in names if settings[x] != getattr(Config, x)}
            write_json(Path(self.own.write_preset), changed)
        write_page(self.study, self.folder / "study.html")

    def _open_study(self) -> optuna.Study:
        """Make the study, or find it. Raises ConfigError if its storage cannot be used."""
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        warnings.filterwarnings("ignore", "The reported value is ignored")  # of a continued trial
        median = MedianPruner(n_warmup_steps=REPORTS // 5)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            journal = JournalFileBackend(str(self.folder / "study.log"))
            return optuna.create_study(
                storage=self.own.storage or JournalStorage(journal),
                study_name=self.folder.name,
                direction="maximize" if self.sign > 0 else "minimize",
                sampler=TPESampler(multivariate=True, constant_liar=True),
                pruner=median if self.own.pruner == "median" else NopPruner(),
                load_if_exists=True,
            )
        except Exception as error:  # whatever a database raises
            raise ConfigError(
                f"--storage={self.own.storage}: no study can be kept there, or not in "
                f"{self.folder} ({error})"
            ) from error

    def _next_trial(self, deadline: float) -> Trial | None:
        """Return a trial of this folder whose process has died, else a new one, if one is left."""
        if time.monotonic() > deadline:
            return None
        lock = lock_file(self.folder / "lock", wait=True)  # for those that play in this folder, too
        try:
            begun = [x for x in self.study.get_trials(deepcopy=False) if "host" in x.user_attrs]
            for trial in begun:
                is_here = trial.user_attrs["host"] == HOST and self._path(trial.number).exists()
                if is_here and trial.state == TrialState.RUNNING and self._take(trial.number):
                    return Trial(self.study, trial._trial_id)
            if len(begun) >= self.own.trials:
                return None
            new = self.study.ask()
            self._take(new.number)
            new.set_user_attr("host", HOST)
            return new
        finally:
            os.close(lock)

    def _path(self, number: int) -> Path:
        return self.folder / f"trial-{number:04}"

    def _take(self, number: int) -> bool:
        """Lock a trial's folder. Return whether nobody had."""
        path = self._path(number)
        path.mkdir(exist_ok=True)
        try:
            self.locks[number] = lock_file(path / "lock")
        except BlockingIOError:
            return False
        return True

    def _play(self, trial: Trial) -> Job:
        """Make a run for each seed, and tell the study what came of them.

        Raises RunFailed if a signal stopped a run, or if the first trial's flags are refused."""
        flags: Settings = {x.name: x.suggest(trial) for x in self.space}
        trial.set_user_attr("flags", flags)
        scores: list[float] = []
        returns: list[float] = []  # of the last 100 episodes of each run
        value, state = None, TrialState.FAIL
        try:
            config = replace(self.config, **flags)
            for seed in range(config.seed, config.seed + config.seeds):
                folder = self._path(trial.number) / f"s{seed}"
                yield from self._train(trial, {**flags, "seed": seed}, folder, returns)
                summary = read_json(folder / "summary.json", {})
                scores.append(self._score(summary))
                returns.append(scores[-1] if self.sign > 0 else summary["mean_return"] or math.nan)
            value, state = float(interquartile_mean(scores)), TrialState.COMPLETE
        except optuna.TrialPruned:
            state = TrialState.PRUNED
        except ConfigError as contradiction:
            trial.set_user_attr("error", str(contradiction))
        except RunFailed as failure:
            is_refused = failure.exit_code == ConfigError.exit_code and not trial.number
            if is_refused or failure.exit_code in STOPPED_BY_SIGNAL:
                raise
            trial.set_user_attr("error", f"{failure}, see {OUTPUT} there")
        self.live.console.print(describe(self.study.tell(trial, value, state)))
        os.close(self.locks.pop(trial.number))
        self.live.update(best_trials(self.study, self.own.trials))

    def _train(self, trial: Trial, flags: Settings, folder: Path, earlier: list[float]) -> Job:
        """Make a run, or continue it. earlier: returns of the trial's other seeds.

        Raises RunFailed, TrialPruned."""
        if (folder / "summary.json").exists():
            return
        with (folder.parent / OUTPUT).open("ab") as output:
            run = start_run(
                {"num_workers": 0, **self.given, **flags, **OF_A_TRIAL, "run_dir": folder},
                stdout=output,
                stderr=output,
            )
        waiting = wait_for(run, folder)
        next_report = 0.0
        for process in waiting:
            yield process
            if time.monotonic() < next_report:
                continue
            next_report = time.monotonic() + SECONDS_BETWEEN_REPORTS
            self._report(trial, folder, earlier)
            if trial.should_prune():
                run.terminate()
                with suppress(RunFailed):
                    yield from waiting
                raise optuna.TrialPruned

    def _report(self, trial: Trial, folder: Path, earlier: list[float]) -> None:
        """Report the returns that a run has come to after each tenth of its steps."""
        try:
            metrics = read_run(folder).metrics
        except ConfigError:  # it has not finished an iteration yet
            return
        steps = metrics["step"]
        for part in range(1, REPORTS):
            row = np.searchsorted(steps, part * self.config.total_steps / REPORTS)
            number = REPORTS * len(earlier) + part
            if row < len(steps) and (trial.number, number) not in self.reported:
                self.reported.add((trial.number, number))
                value = np.mean([*earlier, metrics[RETURN][row]])
                trial.report(self.sign * float(value), number)

    def _score(self, summary: Settings) -> float:
        """Return what --score asks for, of a run that has ended. Raises ConfigError if no episode
        has."""
        if self.own.score != "return":
            goal = str(self.config.stop_when).replace("solved", RETURN)
            is_reached = str(summary["stopped"]).startswith(goal)
            return summary[self.own.score] * (1 if is_reached else 2)
        returns = [summary["evaluation"]["mean"], summary["mean_return"]]
        for value in returns:
            if value is not None:
                return value
        raise ConfigError(
            f"--total_steps={self.config.total_steps}: give more, no episode has ended"
        )
