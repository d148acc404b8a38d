"""Names in state dicts: "part.name", as in those of torch modules."""

from collections.abc import Mapping
from typing import Any


def add_prefix(part: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part's state under the names "part.name"."""
    return {f"{part}.{name}": value for name, value in state.items()}


def select_prefix(part: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a state has under the names "part.name", by name."""
    prefix = f"{part}."
    return {
        name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)
    }
