"""Errors of environments and of the worker processes that step them."""

import traceback

from ppo.errors import PPOError


class EnvironmentUnavailable(PPOError, ValueError):
    """The environment cannot be made, observed or acted in."""

    exit_code = 2


class ManyMade(EnvironmentUnavailable):
    """A single environment was asked for, but a batch or a team is made."""


class InvalidEnvOutput(ValueError):
    """An environment returned what its spaces or gymnasium's interface exclude."""


class WorkerError(PPOError):
    """A worker cannot go on. args: what happened, and the traceback of what was raised, if any."""


def worker_error(culprit: str, error: BaseException) -> WorkerError:
    """Say who raised an error; call it while that error is being handled."""
    message = f"{culprit} raised {type(error).__name__}: {error}"
    return WorkerError(message, traceback.format_exc())
