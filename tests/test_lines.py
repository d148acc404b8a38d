"""The lines between parts of the code."""

import re
from pathlib import Path

from tests.running import ROOT

SOURCES = [
    ROOT / "main.py",
    *ROOT.glob("ppo/*.py"),
    *ROOT.glob("envs/*.py"),
    *ROOT.glob("models/*"),
]


def imports_of(path: Path) -> list[str]:
    return re.findall(r"^\s*(?:from|import) ([\w.]+)", path.read_text(), re.MULTILINE)


def test_the_core_names_no_extra():
    assert len(SOURCES) > 40
    for path in [x for x in SOURCES if x.suffix == ".py"]:
        assert not [x for x in imports_of(path) if x.startswith("ppo.extras.")], path
