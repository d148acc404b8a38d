"""Train a policy, and use it: from ppo import Config, train, load_policy."""

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

__version__ = "2.0.1"

LAZY = {
    "Callback": "ppo.callbacks.base:Callback",
    "Config": "ppo.config.config:Config",
    "Evaluation": "ppo.run.summary:Evaluation",
    "Learner": "ppo.algorithm.learner:Learner",
    "Logger": "ppo.run.loggers.logger:Logger",
    "Policy": "ppo.policy.policy:Policy",
    "RunSummary": "ppo.run.summary:RunSummary",
    "load_policy": "ppo.policy.load:load_policy",
    "train": "ppo.trainer:train",
    "tuned_config": "ppo.config.settings:tuned_config",
}

if TYPE_CHECKING:  # the same, for editors
    from ppo.algorithm.learner import Learner as Learner
    from ppo.callbacks.base import Callback as Callback
    from ppo.config.config import Config as Config
    from ppo.config.settings import tuned_config as tuned_config
    from ppo.policy.load import load_policy as load_policy
    from ppo.policy.policy import Policy as Policy
    from ppo.run.loggers.logger import Logger as Logger
    from ppo.run.summary import Evaluation as Evaluation
    from ppo.run.summary import RunSummary as RunSummary
    from ppo.trainer import train as train


def __getattr__(name: str) -> Any:
    """Import the names in LAZY, and those of extensions, on first access, since importing torch is
    slow."""
    from ppo.extensions import names_of

    path = LAZY.get(name) or names_of("exports").get(name)
    if not path:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return resolve_name(path)
