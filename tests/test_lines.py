"""The lines between parts of the code."""

import re
import shutil
from pathlib import Path
from zipfile import ZipFile

import pytest

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


EXTRAS = {x.stem: x.read_text() for x in ROOT.glob("ppo/extras/*.py") if x.stem != "__init__"}


def users_of(name: str) -> set[str]:
    """The extras that import an extra, or one that does."""
    pattern = rf"from ppo\.extras(\.| import ){name}\b"
    users = {user for user, text in EXTRAS.items() if re.search(pattern, text)}
    return users.union(*map(users_of, users))


def copy_without(extras: set[str], folder: Path) -> None:
    """Copy the source without extras, nor what the table says of them."""
    for name in ("ppo", "envs", "models"):
        shutil.copytree(ROOT / name, folder / name, symlinks=True)
    shutil.copy(ROOT / "main.py", folder)
    for name in extras:
        (folder / "ppo" / "extras" / f"{name}.py").unlink()
    table = folder / "ppo" / "extras" / "__init__.py"
    gone = re.compile(rf"ppo\.extras\.({'|'.join(extras)})\b")
    lines = [line for line in table.read_text().splitlines() if not gone.search(line)]
    table.write_text("\n".join(lines))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXTRAS)
def test_any_extra_may_go(name, tmp_path):
    """The help of all flags imports what is left."""
    copy_without({name, *users_of(name)}, tmp_path)
    done = python("main.py", "--help=all", cwd=tmp_path, PYTHONPATH="")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_plain_run_needs_no_extra(tmp_path):
    copy_without({*EXTRAS}, tmp_path)
    line = "--env_name=CartPole-v1 --total_steps=2048 --eval_episodes=1 --run_dir=run"
    done = python("main.py", *line.split(), cwd=tmp_path, PYTHONPATH="")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "run" / "summary.json").exists()


@pytest.mark.slow
def test_a_wheel_has_all_files_and_trains(tmp_path):
    """In the source, ppo/envs and ppo/models are links."""
    source, made = tmp_path / "source", tmp_path / "made"
    for name in ("ppo", "envs", "models"):
        shutil.copytree(ROOT / name, source / name, symlinks=True)
    for name in ("pyproject.toml", "setup.cfg", "README.md"):
        shutil.copy(ROOT / name, source)
    line = "-m pip wheel -q --no-deps --no-build-isolation --wheel-dir=.. ."
    done = python(*line.split(), cwd=source)
    assert done.returncode == 0, done.stderr
    ZipFile(next(tmp_path.glob("*.whl"))).extractall(made)
    shutil.copytree(ROOT / "ppo", tmp_path / "ppo", ignore=shutil.ignore_patterns("*.pyc"))
    expected = {x.relative_to(tmp_path) for x in tmp_path.glob("ppo/**/*.*")}
    assert {x.relative_to(made) for x in made.glob("ppo/**/*.*")} == expected
    (tmp_path / "out").mkdir()
    line = "-m ppo CartPole-v1 --total_steps=2048 --eval_episodes=1"
    done = python(*line.split(), cwd=tmp_path / "out", PYTHONPATH=str(made))
    assert (done.returncode, done.stderr) == (0, "")
