"""An Optuna study that several processes share, and that can be continued after they end."""

import warnings
from contextlib import suppress
from io import FileIO
from pathlib import Path

import optuna
from optuna.pruners import MedianPruner, NopPruner
from optuna.samplers import TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState

from ppo.config.flags import Settings
from ppo.errors import ConfigError
from ppo.system.files import lock_file, open_regular

WARMUP = 2  # the report of a trial, counted from 1, at which the pruner may first end it


class SharedStudy:
    """Begin and end the trials of a study; each trial has its own folder in the study's folder.

    A trial whose process has died is begun again by the next process: its lock is free then.
    storage: URL of a database, None for a file in the folder; is_maximized: whether the greatest
    score is best; does_prune: whether Optuna's MedianPruner ends trials early; begun_with: settings
    that all processes of the study must share. Raises ConfigError if these differ, if the folder is
    that of a run, or if the study cannot be opened.
    """

    def __init__(
        self,
        folder: Path,
        storage: str | None,
        is_maximized: bool,
        does_prune: bool,
        begun_with: Settings,
    ) -> None:
        self.folder = folder
        self.storage = storage
        self.locks: dict[int, FileIO] = {}  # of this process's trials, by number
        if (folder / "config.json").exists():
            raise ConfigError(f"{folder} is the folder of a run: give a study another")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.filterwarnings("ignore", module="optuna")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with self.locked():
                with suppress(FileNotFoundError):  # Optuna would wait for a pipe
                    open_regular(folder / "study.log").close()
                journal = None if storage else JournalFileBackend(str(folder / "study.log"))
                self.study = optuna.create_study(
                    storage=JournalStorage(journal) if journal else storage,
                    study_name=folder.name,
                    direction="maximize" if is_maximized else "minimize",
                    sampler=TPESampler(multivariate=True, constant_liar=True),
                    pruner=MedianPruner(n_warmup_steps=WARMUP) if does_prune else NopPruner(),
                    load_if_exists=True,
                )
                before = self.study.user_attrs.get("begun_with", begun_with)
                self.study.set_user_attr("begun_with", before)
        except Exception as error:  # whatever a database raises
            raise ConfigError(
                f"no study can be kept in {folder}, --storage={storage} ({error})"
            ) from error
        if before != begun_with:
            raise ConfigError(
                f"the study in {folder} was begun with other flags: give those, or begin another "
                "by --name"
            )

    def locked(self) -> FileIO:
        """Wait for the study's lock, and return it: a context that releases it at the end."""
        return lock_file(self.folder / "lock", wait=True)

    def begin_trial(self, num_trials: int) -> Trial | None:
        """Return a trial of this folder whose process has died, else a new one; None if none is
        left.

        num_trials: the number of trials in the whole study. Raises ConfigError if the new trial's
        folder belongs to a trial of another study."""
        with self.locked():
            trials = self.study.get_trials(deepcopy=False)
            for trial in trials:
                # With a database, trials without a folder here belong to other machines.
                is_here = not self.storage or self.path(trial.number).exists()
                if trial.state == TrialState.RUNNING and is_here and self._take(trial.number):
                    return Trial(self.study, trial._trial_id)
            if len(trials) >= num_trials:
                return None
            new = self.study.ask()
            if self.path(new.number).exists():
                self.study.tell(new, state=TrialState.FAIL)
                raise ConfigError(
                    f"{self.path(new.number)} is of another study: begin this one by --name"
                )
            self._take(new.number)
            return new

    def path(self, number: int) -> Path:
        """Return the folder of a trial."""
        return self.folder / f"trial-{number:04}"

    def _take(self, number: int) -> bool:
        """Lock a trial's folder. Return False if it is locked already."""
        path = self.path(number)
        path.mkdir(exist_ok=True)
        try:
            self.locks[number] = lock_file(path / "lock")
        except BlockingIOError:
            return False
        return True

    def end_trial(self, trial: Trial, value: float | None, state: TrialState) -> FrozenTrial:
        """Record a trial's score and state in the study, and unlock the trial's folder.

        value: the score, None unless the trial is complete."""
        ended = self.study.tell(trial, value, state)
        self.locks.pop(trial.number).close()
        return ended
