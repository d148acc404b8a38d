"""The wall between the core and its extras: the core names none of them but in tests/wall.json."""

import json

from tests.wall import EXCEPTIONS, found


def test_the_core_names_no_extra_but_in_the_exceptions() -> None:
    """The list may only shrink: what is found no longer is taken out of it."""
    allowed = json.loads(EXCEPTIONS.read_text())
    names = found()
    new = {path: sorted({*x} - {*allowed.get(path, [])}) for path, x in names.items()}
    assert not {path: x for path, x in new.items() if x}, "the core must not name an extra"
    assert names == allowed, "it has shrunk: python -m tests.wall"
