"""The acceptance tests of this tree, each as a slow test; see tests/acceptance."""

from importlib import import_module
from pathlib import Path

import pytest

from tests.acceptance.__main__ import ask
from tests.acceptance.tree import Tree
from tests.running import ROOT

TREE = Tree(ROOT)
PARTS = ("twins", "faults", "files", "flags", "worlds", "edits")
CASES = [(part, name) for part in PARTS for name in import_module(f"tests.acceptance.{part}").CASES]


@pytest.mark.slow
@pytest.mark.parametrize(("part", "name"), CASES, ids=[", ".join(case) for case in CASES])
def test_acceptance(part: str, name: str, tmp_path: Path):
    assert not ask(import_module(f"tests.acceptance.{part}"), name, TREE, None, tmp_path / "0")
