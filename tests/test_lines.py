"""The lines between parts of the code."""

import re
import shutil
from pathlib import Path

from tests.running import ROOT, python

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


def test_a_plain_run_needs_no_extra(tmp_path):
    for name in ("ppo", "envs", "models"):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True)
    shutil.copy(ROOT / "main.py", tmp_path)
    for path in [x for x in (tmp_path / "ppo" / "extras").glob("*.py") if x.stem != "__init__"]:
        path.unlink()
    line = "--env_name=CartPole-v1 --total_steps=2048 --eval_episodes=1 --run_dir=run"
    done = python("main.py", *line.split(), cwd=tmp_path, PYTHONPATH="")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "run" / "summary.json").exists()
