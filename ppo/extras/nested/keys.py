"""Choose parts of nested observations by their keys."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ppo.errors import ConfigError
from ppo.extras.nested.flags import NestedFlags
from ppo.models import MODELS
from ppo.models.observation_parts import chosen_parts, vectors_of

if TYPE_CHECKING:
    from ppo.components import Components  # heavy: policies are made without it
    from ppo.config.config import Config


def chosen(flag: str, keys: str, names: Iterable[str]) -> list[str]:
    """Return those of the names of parts that the keys of a flag choose. Raises ConfigError for a
    key that chooses none."""
    names = [*names]
    for key in keys.split(","):
        if not chosen_parts([key], names):
            raise ConfigError(
                f"--{flag}={key} is no part that it may name: give some of "
                f"{', '.join(names) or 'none'}"
            )
    return chosen_parts(keys.split(","), names)


def standardized(config: "Config", names: Sequence[str]) -> list[str]:
    """Return those of the parts that --normalize_keys chooses."""
    keys = NestedFlags.of(config).normalize_keys
    return [*names] if keys is None else chosen_parts(keys.split(","), names)


def check(parts: "Components") -> list[str]:
    """Raise ConfigError for a key of no part that can be standardised, and for keys of a network
    that they do not choose for."""
    config, flags = parts.config, NestedFlags.of(parts.config)
    if flags.normalize_keys:
        chosen("normalize_keys", flags.normalize_keys, vectors_of(parts.spaces.observations))
    for flag in ("policy_keys", "value_keys"):
        if ":" in config.model and getattr(flags, flag):
            raise ConfigError(
                f"--{flag} is for the networks that are built in: leave it out, and let "
                f"{config.model} read what it needs (see policy_parts of its base class)"
            )
    if config.share_trunk and flags.value_keys not in (None, flags.policy_keys):
        raise ConfigError(
            f"--value_keys={flags.value_keys}: policy and value share a trunk here, which reads "
            "--policy_keys: leave it out, or give another --model or --share_trunk=False"
        )
    return []


def resolve(config: "Config") -> dict[str, Any]:
    """Let policy and value have a trunk each if they read different parts and have no memory."""
    flags = NestedFlags.of(config)
    shares_always = config.model in MODELS and MODELS[config.model].shares_trunk
    if shares_always or flags.policy_keys == flags.value_keys:
        return {}
    return {"share_trunk": False}
