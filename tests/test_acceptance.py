"""The acceptance tests of this tree, each as a slow test; see tests/acceptance."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.acceptance.__main__ import ask
from tests.acceptance.tree import Tree
from tests.running import ROOT

TREE = Tree(ROOT)
# Cases, by part, that wait for extras which are not there yet.
WAITING = {
    "twins": "ranks",
    "faults": "no case",
    "files": "no case",
    "flags": "no case",
    "worlds": "no case",
    "edits": "no case",
}
CASES = [
    (part, name)
    for part, waiting in WAITING.items()
    for name in import_module(f"tests.acceptance.{part}").CASES
    if not re.search(waiting, name)
]


@pytest.mark.slow
@pytest.mark.parametrize(("part", "name"), CASES, ids=[", ".join(case) for case in CASES])
def test_acceptance(part: str, name: str, tmp_path: Path):
    assert not ask(import_module(f"tests.acceptance.{part}"), name, TREE, None, tmp_path / "0")
