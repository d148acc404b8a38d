"""Errors that end a command: each message is one sentence that names the cause and the fix."""

import difflib
import signal
from collections.abc import Iterable


def suggest(word: str, known: Iterable[str], fallback: str) -> str:
    """Return "did you mean ...?" with the closest known word, or the fallback if none is close."""
    near = difflib.get_close_matches(word, known, n=1)
    if near:
        return f"did you mean {near[0]}?"
    return fallback


def describe(error: BaseException) -> str:
    """Return what an error of somebody else's code says, with its type if that is not ValueError,
    whose messages are sentences."""
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


class PPOError(Exception):
    """Base of all errors meant for users, printed without the trainer's own traceback."""

    exit_code = 1
    is_reported = False  # whether the user has been told

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ConfigError(PPOError, ValueError):
    """A flag's value cannot be used; the message names the flag and the fix."""

    exit_code = 2


class CheckpointError(PPOError, ValueError):
    """A checkpoint cannot be used."""

    exit_code = 3


class RunInUse(PPOError):
    """Another process works in the run's folder."""

    exit_code = 4


class SaveFailed(PPOError):
    """The last state of a run could not be written."""


class CallbackError(PPOError):
    """A callback has failed. args: what it raised, and the traceback."""


class NonFinite(PPOError):
    """A loss, a gradient or a weight is infinite or not a number."""


class HelpShown(PPOError):
    """Help was printed, as the command line asked."""

    exit_code = 0
    is_reported = True


class Interrupted(PPOError):
    """A signal ended training, after its state was saved. ending: what was done."""

    def __init__(self, received: signal.Signals, ending: str) -> None:
        super().__init__(f"{received.name} {ending}")
        if received == signal.SIGUSR1:
            received = signal.SIGTERM  # SIGUSR1 announces a SIGTERM
        self.exit_code = 128 + received
