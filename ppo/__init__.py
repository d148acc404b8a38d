"""Train a policy, and use it: from ppo import Config, train, load_policy."""

from pkgutil import resolve_name

LAZY = {
    "Callback": "ppo.callbacks.base:Callback",
    "Config": "ppo.config.config:Config",
    "Evaluation": "ppo.run.summary:Evaluation",
    "Learner": "ppo.algorithm.learner:Learner",
    "Logger": "ppo.run.loggers.logger:Logger",
    "Recorder": "ppo.demonstrations.recorder:Recorder",
    "Policy": "ppo.policy.policy:Policy",
    "RunSummary": "ppo.run.summary:RunSummary",
    "load_policy": "ppo.policy.load:load_policy",
    "record": "ppo.demonstrations.recorder:record",
    "train": "ppo.trainer:train",
    "tuned_config": "ppo.config.settings:tuned_config",
}


def __getattr__(name: str):
    """Import the names in LAZY on first access, since importing torch is slow."""
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return resolve_name(LAZY[name])
