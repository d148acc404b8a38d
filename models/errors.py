"""Errors of models."""

from ppo.errors import PPOError


class ModelMismatch(PPOError, ValueError):
    """The model cannot read the environment's observations or act in it."""

    exit_code = 2
