"""Train a policy, and use it: from ppo import Config, train, load_policy."""

import os
from pkgutil import resolve_name

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for numpy's small matrices

LAZY = {
    "Callback": "ppo.callbacks.base:Callback",
    "Config": "ppo.config.config:Config",
    "Learner": "ppo.algorithm.learner:Learner",
    "Policy": "ppo.policy.policy:Policy",
    "load_policy": "ppo.policy.load:load_policy",
    "train": "ppo.trainer:train",
    "tuned_config": "ppo.config.resolve:tuned_config",
}


def __getattr__(name: str):
    """Import the names in LAZY on first access, since importing torch is slow."""
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return resolve_name(LAZY[name])
