"""Errors for users: one sentence each, printed without a traceback, and an exit code."""

from collections.abc import Iterable
from difflib import get_close_matches
from functools import partial
from signal import Signals
from textwrap import fill

# Break a line of 80 columns or more between words.
wrapped = partial(fill, width=80, break_long_words=False, break_on_hyphens=False)


class PPOError(Exception):
    """Base class of errors for users. Arguments: a sentence, and tracebacks of the user's code."""

    exit_code = 1

    def __str__(self) -> str:
        return str(*self.args[:1])


class ConfigError(PPOError, ValueError):
    """A flag, an environment or a model cannot be used."""

    exit_code = 2


class CheckpointError(PPOError, ValueError):
    """A checkpoint cannot be used."""

    exit_code = 3


class RunInUse(PPOError):
    """Another process trains in the folder of the run."""

    exit_code = 4


class EnvironmentFailed(PPOError, RuntimeError):
    """An environment has raised outside of a worker."""


class BadValue(ValueError):
    """An environment has returned what cannot be used."""


class WorkerLost(Exception):
    """A worker has died, raised or hung. Arguments: the cause, and any traceback."""


class Stopped(Exception):
    """The trainer was asked to stop while it waited."""


class TrainingError(PPOError, RuntimeError):
    """Training cannot go on: workers fail too often, or numbers are not finite."""


class SaveFailed(PPOError, OSError):
    """The last state of a run could not be saved."""


class Interrupted(PPOError):
    """A signal ended training, after its state was saved."""

    def __init__(self, message: str, number: Signals) -> None:
        super().__init__(message)
        self.signal = number
        self.exit_code = {Signals.SIGINT: 130, Signals.SIGHUP: 129}.get(number, 143)


def suggest(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" with the closest known word, or else all of them."""
    names = sorted(known)
    if close := get_close_matches(word, names, 1):
        return f"; did you mean {close[0]}?"
    return f"; choose from {', '.join(names)}" if len(names) < 40 else ""


def reason(error: BaseException) -> str:
    """Return what an exception says, in one line."""
    name = type(error).__name__
    try:
        text = " ".join(str(error).split())[:300]
    except Exception:  # an exception of the user's may not have a text
        return name
    return f"{name}: {text}" if text else name
