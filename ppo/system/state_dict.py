"""Names in state dicts: "part.name", as in those of torch modules."""

from typing import Any

State = dict[str, Any]  # by name: tensors, arrays, and values that JSON can hold


def add_prefix(part: str, state: State) -> State:
    """Return a part's state under the names "part.name"."""
    return {f"{part}.{name}": value for name, value in state.items()}


def select_prefix(part: str, state: State) -> State:
    """Return the values that a state has under the names "part.name", as "name"."""
    prefix = f"{part}."
    return {
        name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)
    }
