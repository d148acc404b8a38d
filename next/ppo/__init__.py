"""Train a policy by PPO, and use it: from ppo import train, load_policy."""

from importlib import import_module
from typing import Any

PLACES = {
    "Callback": "ppo.callbacks",
    "Config": "ppo.config",
    "Interrupted": "ppo.errors",
    "Learner": "ppo.learner",
    "Policy": "ppo.policy",
    "RunSummary": "ppo.trainer",
    "load_policy": "ppo.policy",
    "losses": "ppo.losses",
    "train": "ppo.trainer",
}
__version__ = "3.0.dev0"
__all__ = ["Callback", "Config", "Interrupted", "Learner", "load_policy", "train"]


def __getattr__(name: str) -> Any:
    """Import what is used only when it is used: a worker needs no torch."""
    if name not in PLACES:
        raise AttributeError(f"module ppo has no attribute {name}")
    module = import_module(PLACES[name])
    return module if name == "losses" else getattr(module, name)
