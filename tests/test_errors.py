"""Errors that users see: one sentence, and an exit code for each kind."""

import pickle
import signal

import pytest

from ppo.envs.errors import EnvironmentUnavailable, WorkerError, worker_error
from ppo.errors import (
    CheckpointError,
    ConfigError,
    Interrupted,
    NonFinite,
    PPOError,
    RunInUse,
    SaveFailed,
    suggest,
)
from ppo.models.errors import ModelMismatch


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [
        (ConfigError, 2),
        (EnvironmentUnavailable, 2),
        (ModelMismatch, 2),
        (CheckpointError, 3),
        (RunInUse, 4),
        (SaveFailed, 1),
        (NonFinite, 1),
        (WorkerError, 1),
    ],
)
def test_each_kind_of_error_has_its_exit_code(kind: type[PPOError], exit_code: int) -> None:
    error = kind("the message", "a traceback")
    assert isinstance(error, PPOError)
    assert error.exit_code == exit_code
    assert str(error) == "the message"


def test_errors_that_name_a_wrong_value_are_value_errors() -> None:
    for kind in (ConfigError, CheckpointError, EnvironmentUnavailable, ModelMismatch):
        assert issubclass(kind, ValueError)


@pytest.mark.parametrize(
    ("received", "exit_code"),
    [
        (signal.SIGINT, 130),
        (signal.SIGTERM, 143),
        (signal.SIGUSR1, 143),
        (signal.SIGHUP, 129),
    ],
)
def test_an_interrupted_run_says_where_it_was_saved(
    received: signal.Signals, exit_code: int
) -> None:
    error = Interrupted(received, "after step 128: stopped, saved in runs/x")
    assert str(error) == f"{received.name} after step 128: stopped, saved in runs/x"
    assert error.exit_code == exit_code


def test_an_environments_error_keeps_its_traceback_between_processes() -> None:
    try:
        raise KeyError("wheel")
    except KeyError as error:
        found = pickle.loads(pickle.dumps(worker_error("environment 3 of Car-v0", error)))
    assert isinstance(found, WorkerError)
    assert str(found) == "environment 3 of Car-v0 raised KeyError: 'wheel'"
    assert 'raise KeyError("wheel")' in found.args[1]


def test_only_a_near_word_is_suggested() -> None:
    assert suggest("evaluat", ["train", "evaluate"], "none") == "did you mean evaluate?"
    assert suggest("zzz", ["train", "evaluate"], "none") == "none"
