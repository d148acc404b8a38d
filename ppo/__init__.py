"""Train a policy, and use it: from ppo import Config, train, load_policy."""

import importlib
import os
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for numpy's small matrices

LAZY = {
    "Config": "config.config",
    "Learner": "algorithm.learner",
    "Policy": "policy.policy",
    "load_policy": "policy.policy",
    "train": "trainer",
}


def __getattr__(name: str) -> Any:
    """Import a name of LAZY when it is first asked for: torch is heavy."""
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"ppo.{LAZY[name]}"), name)
