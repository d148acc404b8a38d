"""Flags of sets of entities."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ppo.config.flags import Flags, fixed_flag

if TYPE_CHECKING:
    from ppo.config.config import Config


class SetFlags(Flags):
    """Sets of entities."""

    set_keys: str = fixed_flag(
        "entities",
        "For --model=set: comma-separated keys of the parts (n, k) of a Dict observation that are "
        "sets of up to n entities of k numbers; a part (n,) named KEY_mask, or mask, is 1 where an "
        "entity is there. Neither is standardised, so that the order of entities has no meaning.",
        needs="model=set",
    )


def set_names(flags: Flags) -> list[str]:
    """Return the names of parts that are sets."""
    return SetFlags.of(flags).set_keys.split(",")


def mask_names(name: str) -> tuple[str, str]:
    """Return the names that the mask of a set may have; the first that is there counts."""
    return f"{name}_mask", "mask"


def standardized(config: "Config", names: Sequence[str]) -> list[str]:
    """Return the parts that are neither sets nor their masks, if the network reads sets."""
    own = {one for name in set_names(config) for one in (name, *mask_names(name))}
    return [name for name in names if config.model != "set" or name not in own]
