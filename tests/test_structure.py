"""What the source promises about itself."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import ROOT

PACKAGES = ("ppo", "envs", "models")
SOURCES = [ROOT / "main.py", *(path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))]


def imports(path: Path) -> set[str]:
    """Top-level names of all packages that a file imports, wherever in it."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {name.split(".")[0] for name in plain | {node.module for node in nodes if isinstance(node, ast.ImportFrom)}}


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_meet_where_runs_are_made_only(package: str) -> None:
    others = {*PACKAGES, "main"} - {package}
    meeting = {path for path in (ROOT / package).rglob("*.py") if imports(path) & others}
    assert meeting <= {ROOT / "ppo" / name for name in ("trainer.py", "policy.py", "resolve.py")}


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_go_one_way(package: str) -> None:
    """Modules of a package can be put in an order in which each imports earlier ones only."""
    files = {path.stem: path for path in (ROOT / package).glob("*.py")}
    needs = {}
    for stem, path in files.items():
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        modules = [(node.module or "").removeprefix(package).lstrip(".") or "__init__" for node in nodes]
        names = {alias.name for node in nodes if node.module == package for alias in node.names}
        of_package = {m for node, m in zip(nodes, modules, strict=True) if (node.module or "").startswith(package)}
        needs[stem] = (of_package | names) & files.keys() - {stem, "__init__"}
    placed: set[str] = set()
    while free := {stem for stem in needs.keys() - placed if needs[stem] <= placed | {"__init__"}}:
        placed |= free
    assert placed == needs.keys()


def test_the_source_is_small() -> None:
    assert sum(path.read_text().count("\n") for path in SOURCES) <= 6650


def test_starting_a_worker_takes_no_heavy_import() -> None:
    """main.py is imported by every worker process, ppo.envs.worker by its target; torch comes with the policy only."""
    code = "import sys, main, ppo.envs.worker, models, ppo; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    heavy = {"torch", "wandb", "rich", "matplotlib", "tensorboard", "plotly", "imageio", "onnx", "onnxruntime"}
    assert not heavy & set(done.stdout.split())
