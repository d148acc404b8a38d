"""Flags of sets of entities."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ppo.config.flags import Flags, fixed_flag

if TYPE_CHECKING:
    from ppo.config.config import Config


class SetFlags(Flags):
    """Sets of entities."""

    set_keys: str = fixed_flag(
        "entities",
        "For --model=set: comma-separated keys of the parts (n, k) of a Dict observation that are "
        "sets of up to n entities of k numbers; a part (n,) named KEY_mask, or mask beside them, "
        "is 1 where an entity is there. Neither is standardised, so that the order of entities has "
        "no meaning.",
        needs="model=set",
    )


def set_names(flags: Flags) -> list[str]:
    """Return the names of parts that are sets."""
    return SetFlags.of(flags).set_keys.split(",")


def mask_of(name: str, names: Collection[str]) -> str | None:
    """Return which of the names of all parts is that of a set's mask, None without one: KEY_mask,
    the mask beside the set, or that of the whole observation."""
    beside = ".".join([*name.split(".")[:-1], "mask"])
    return next((one for one in (f"{name}_mask", beside, "mask") if one in names), None)


def standardized(config: "Config", names: Sequence[str]) -> list[str]:
    """Return the parts that are neither sets nor their masks, if the network reads sets."""
    if config.model != "set":
        return [*names]
    own = {one for name in set_names(config) for one in (name, mask_of(name, names))}
    return [name for name in names if name not in own]
