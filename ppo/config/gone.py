"""Flags and methods of version 1 that are gone, and what to give instead."""

from collections.abc import Iterable
from typing import Any

from ppo.errors import ConfigError, suggest

# Checkpoints and policies of version 1 hold these flags, which are ignored there.
GONE = {
    "compile": "leave it out",
    "fresh_env_per_episode": "leave it out, or make the environment anew in its own reset",
    "overlap": "leave it out: the next rollout is collected after the update",
}

# Of learners, which a class of the user's own may still override.
GONE_METHODS = ("compute_gradients", "log_probs_and_values", "predict_values", "standardize")


def check_methods(learner: Any) -> None:
    """Raise ConfigError if a learner has a method that nothing calls any more."""
    for name in GONE_METHODS:
        if hasattr(learner, name):
            raise ConfigError(
                f"{type(learner).__name__}.{name} is not called since version 2: do it in loss or "
                "advantages, or in a backend of an extension"
            )


def answer_unknown(flag: str, known: Iterable[str], fallback: str) -> str:
    """Return what to give in place of a flag that does not exist: a sentence, or the fallback."""
    name = flag.removeprefix("--")
    if name in GONE:
        return f"it is gone since version 2: {GONE[name]}"
    return suggest(flag, known, fallback)


def without_gone(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a file of version 1 without the flags that are gone."""
    return {name: value for name, value in settings.items() if name not in GONE}


def describe_gone(settings: dict[str, Any]) -> dict[str, Any]:
    """Describe the flags of a file of version 1 that are gone, by name, where they were used."""
    return {name: f"{name} is gone, it was {settings[name]}" for name in GONE if settings.get(name)}
