"""Train a policy by PPO, and use it: from ppo import train, load_policy."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ppo.callbacks import Callback as Callback
    from ppo.config import Config as Config
    from ppo.errors import Interrupted as Interrupted
    from ppo.learner import Learner as Learner
    from ppo.policy import Policy as Policy
    from ppo.policy import load_policy as load_policy
    from ppo.trainer import RunSummary as RunSummary
    from ppo.trainer import train as train

PLACES = {
    "Callback": "ppo.callbacks",
    "Config": "ppo.config",
    "Interrupted": "ppo.errors",
    "Learner": "ppo.learner",
    "Policy": "ppo.policy",
    "RunSummary": "ppo.trainer",
    "load_policy": "ppo.policy",
    "train": "ppo.trainer",
}
__version__ = "3.0.0"


def __getattr__(name: str) -> Any:
    """Import what is used only when it is used: a worker needs no torch."""
    if name not in PLACES:
        raise AttributeError(f"module ppo has no attribute {name}")
    return getattr(import_module(PLACES[name]), name)
