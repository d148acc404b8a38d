"""Choose parts of nested observations by their keys."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ppo.errors import ConfigError
from ppo.extras.nested.flags import NestedFlags
from ppo.models.observation_parts import chosen_parts, vectors_of

if TYPE_CHECKING:
    from ppo.components import Components  # heavy: policies are made without it
    from ppo.config.config import Config


def standardized(config: "Config", names: Sequence[str]) -> list[str]:
    """Return those of the parts that --normalize_keys chooses."""
    keys = NestedFlags.of(config).normalize_keys
    return [*names] if keys is None else chosen_parts(keys.split(","), names)


def check(parts: "Components") -> list[str]:
    """Raise ConfigError for a key of no part that can be standardised."""
    names = [*vectors_of(parts.spaces.observations)]
    for key in (NestedFlags.of(parts.config).normalize_keys or "").split(","):
        if key and not chosen_parts([key], names):
            raise ConfigError(
                f"--normalize_keys={key} is no part that can be standardised: give some of "
                f"{', '.join(names) or 'none'}"
            )
    return []
