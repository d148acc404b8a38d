"""Loggers: metrics always go to metrics.csv, and to the loggers that the flags select."""

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any, NamedTuple

from numpy import ndarray

from ppo.algorithm.rollout import Metrics
from ppo.config.config import Config
from ppo.config.run_flags import LOGGERS
from ppo.errors import ConfigError
from ppo.run.folder import RunFolder
from ppo.run.loggers.metrics_file import MetricsFile
from ppo.run.reader import Row
from ppo.run.summary import RunSummary
from ppo.system.imports import check_arguments, import_class, parse_call
from ppo.system.signals import RAISED_BY_SIGNALS


class Histograms(NamedTuple):
    """Hold the values (n,) of histograms by name, and the newest image (H, W, 1 or 3) uint8 that
    the model has read (its last channel, or its last colours), None if there are no images."""

    values: dict[str, ndarray]
    image: ndarray | None


@dataclass
class Logger:
    """Base class of loggers, which show a run's metrics somewhere. A subclass that is a dataclass
    takes further arguments as fields.

    Methods are called in the trainer's process (the first of several), between two rollouts;
    training waits for them, so that what is slow belongs in a thread. A logger that raises is
    dropped, with an event, and training continues. run: its folder (run.path) and its name
    (run.run_id), which stays when it is resumed. notes: lines to show at the start. first_step: the
    environment step from which a resumed run continues, 0 for a new one; later steps may have been
    logged before.
    """

    config: Config
    run: RunFolder
    notes: Sequence[str]
    first_step: int

    def __post_init__(self) -> None:
        """Prepare for the first iteration."""

    def log(self, metrics: Metrics, histograms: Histograms | None) -> None:
        """Show an iteration's metrics, and its histograms if a callback has made them.

        A metric is None if it has no value. Those that all runs have: docs/usage.md.
        """

    def show_progress(self, done: int) -> None:
        """Show the number of finished episodes of the final evaluation."""

    def summarize(self, summary: RunSummary) -> None:
        """Show the results of a finished run."""

    def close(self) -> None:
        """Write what is still pending, and release resources."""

    def abort(self) -> None:
        """Stop at once; called instead of close after a KeyboardInterrupt."""


MakeLogger = Callable[[Config, RunFolder, Sequence[str], int], Logger]


def own_loggers(config: Config) -> dict[str, MakeLogger]:
    """Return what makes the loggers of --logger that are import paths, by their texts. Raises
    ConfigError if one cannot be imported, is no Logger, or does not take its arguments."""
    return {text: _find_logger(text) for text in config.loggers - LOGGERS.keys()}


def _find_logger(text: str) -> MakeLogger:
    try:
        path, arguments, options = parse_call(text)
    except ValueError as error:
        raise ConfigError(f"--logger={text}: {error}") from error
    make = import_class("logger", path, Logger)
    ours = [field.name for field in fields(Logger)]
    check_arguments("logger", text, make, options, *ours, *arguments)
    return lambda *given: make(*given, *arguments, **options)


class Loggers(AbstractContextManager["Loggers"]):
    """Write metrics.csv, and pass metrics on to the loggers of --logger and to the console.

    --logger=none and --verbose=0 turn the console off. A logger that raises is dropped, with an
    event. rows: of a resumed run's metrics.csv, as read_rows returns them. own: see own_loggers.
    """

    def __init__(
        self,
        config: Config,
        run: RunFolder,
        notes: Sequence[str],
        rows: Sequence[Row] = (),
        own: Mapping[str, MakeLogger] = MappingProxyType({}),
    ) -> None:
        self.run = run
        self.metrics_file = MetricsFile(run, rows)
        self.loggers: dict[str, Logger] = {}
        first_step = int(rows[-1]["step"]) if rows else 0
        for name in sorted(config.loggers):
            with self._guard(name):
                make = own.get(name) or resolve_name(LOGGERS[name])
                self.loggers[name] = make(config, run, notes, first_step)

    def log(self, metrics: Metrics, histograms: Histograms | None = None) -> None:
        """Log the metrics of an iteration; later iterations may have more names."""
        self.metrics_file.write(metrics)
        self._call_all("log", metrics, histograms)

    def show_progress(self, done: int) -> None:
        """Show the number of finished episodes of the final evaluation."""
        self._call_all("show_progress", done)

    def finish(self, summary: RunSummary) -> None:
        """Log the results of a run that was not interrupted. Raises SaveFailed if rows of
        metrics.csv could not be written."""
        self._call_all("summarize", summary)
        self.metrics_file.finish()

    def __exit__(self, *exception: object) -> None:
        self.metrics_file.close()
        self._call_all("abort" if exception[0] is KeyboardInterrupt else "close")

    def _call_all(self, method: str, *arguments: Any) -> None:
        for name, logger in list(self.loggers.items()):
            with self._guard(name):
                getattr(logger, method)(*arguments)

    @contextmanager
    def _guard(self, name: str) -> Iterator[None]:
        """Drop a logger that raises, and record an event."""
        try:
            yield
        except RAISED_BY_SIGNALS:
            raise
        except BaseException as error:
            self.loggers.pop(name, None)
            reason = " ".join(str(error).split()) or type(error).__name__
            self.run.event(
                "logger_failed",
                f"--logger={name}: {reason}; training continues without it",
                traceback=traceback.format_exc(),
            )
