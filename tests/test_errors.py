"""Errors that users see: an exit code for each kind, and a near word."""

import pickle

from ppo.envs.errors import EnvironmentUnavailable, WorkerError, worker_error
from ppo.errors import (
    CheckpointError,
    ConfigError,
    NonFinite,
    RunInUse,
    SaveFailed,
    suggest,
)
from ppo.models.errors import ModelMismatch


def test_each_kind_of_error_has_its_exit_code() -> None:
    wrong_values = (ConfigError, EnvironmentUnavailable, ModelMismatch, CheckpointError)
    assert [kind("x").exit_code for kind in wrong_values] == [2, 2, 2, 3]
    assert all(issubclass(kind, ValueError) for kind in wrong_values)
    others = (RunInUse, SaveFailed, NonFinite, WorkerError)
    assert [kind("x").exit_code for kind in others] == [4, 1, 1, 1]


def test_an_environments_error_keeps_its_traceback_between_processes() -> None:
    try:
        raise KeyError("wheel")
    except KeyError as error:
        found = pickle.loads(pickle.dumps(worker_error("environment 3 of Car-v0", error)))
    assert str(found) == "environment 3 of Car-v0 raised KeyError: 'wheel'"
    assert 'raise KeyError("wheel")' in found.args[1]


def test_only_a_near_word_is_suggested() -> None:
    assert suggest("evaluat", ["train", "evaluate"], "none") == "did you mean evaluate?"
    assert suggest("zzz", ["train", "evaluate"], "none") == "none"
