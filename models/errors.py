"""Errors of models that users see."""

from ppo.errors import PPOError


class ModelMismatch(PPOError, ValueError):
    """The model cannot read the environment's observations or choose its actions."""

    exit_code = 2
