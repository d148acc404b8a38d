"""Errors of environments and of the worker processes that step them."""

import traceback
from collections.abc import Sequence
from typing import Any

from ppo.errors import PPOError


class EnvironmentUnavailable(PPOError, ValueError):
    """The environment cannot be made, observed or acted in."""

    exit_code = 2


class OtherForm(EnvironmentUnavailable):
    """A gymnasium.Env was asked for, but something else is made. form: the name of its form."""

    form = ""


class InvalidEnvOutput(ValueError):
    """An environment returned what its spaces or gymnasium's interface exclude."""


class WorkerError(PPOError):
    """A worker cannot go on. args: what happened, and the traceback of what was raised, if any.

    episodes: those that had ended in its part of the rollout, each a ppo.envs.worker.Episode."""

    episodes: Sequence[Any] = ()


def worker_error(culprit: str, error: BaseException) -> WorkerError:
    """Say who raised an error; call it while that error is being handled. The traceback is of the
    user's code, but for what was returned."""
    if isinstance(error, InvalidEnvOutput):
        return WorkerError(f"{culprit}: {error}")
    message = f"{culprit} raised {type(error).__name__}: {error}"
    return WorkerError(message, traceback.format_exc())
