"""Rules that the source keeps: imports, sizes, start-up."""

import ast
import io
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

from tests.running import ROOT

MAX_TOKENS = 73_000
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
# A room may import the rooms before it, and itself; nothing imports back.
ROOMS = (
    ("ppo.errors",),
    ("ppo.system",),
    ("ppo.envs", "ppo.models"),
    ("ppo.config",),
    ("ppo.algorithm",),
    ("ppo.callback",),
    ("ppo.run",),
    ("ppo.policy",),
    ("ppo.analysis",),
    ("ppo.components",),
    ("ppo.stopping",),
    ("ppo.monitor",),
    ("ppo.trainer",),
    ("ppo.commands",),
    ("ppo.__main__",),
    ("main",),
)
LEVELS = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}


def walk(folder: Path) -> list[Path]:
    """All Python files below a folder, those behind links too."""
    files = []
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            files += walk(path)
        elif path.suffix == ".py":
            files.append(path)
    return files


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in [ROOT / "main.py", *walk(ROOT / "ppo")]}


def imports(module: str) -> set[str]:
    """The project's modules that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            base = str(node.module)
            names = {f"{base}.{alias.name}" for alias in node.names} & MODULES.keys()
            found |= names if len(names) == len(node.names) else names | {base}
    return found & MODULES.keys() - {module}


def room(module: str) -> str:
    """The room that a module is in."""
    parts = module.split(".")
    return next(name for n in (2, 1) if (name := ".".join(parts[:n])) in LEVELS)


@pytest.mark.parametrize("module", sorted(MODULES.keys() - {"ppo"}))
def test_no_import_runs_back(module: str) -> None:
    own = room(module)
    later = {
        name for name in imports(module) if room(name) != own and LEVELS[room(name)] >= LEVELS[own]
    }
    assert not later


def test_imports_make_no_circle() -> None:
    needs = {module: imports(module) for module in MODULES}
    placed: set[str] = set()
    while free := {name for name in needs.keys() - placed if needs[name] <= placed}:
        placed |= free
    assert placed == needs.keys()


def test_starting_a_worker_takes_no_heavy_import() -> None:
    """A worker process imports main and ppo.envs.worker_process; torch comes with the policy."""
    code = "import sys, main, ppo.envs.worker_process, ppo.models, ppo; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    heavy = {
        "torch",
        "wandb",
        "rich",
        "matplotlib",
        "tensorboard",
        "imageio",
        "onnx",
        "onnxruntime",
    }
    assert not heavy & set(done.stdout.split())


def tokens(path: Path) -> int:
    """Count a file's tokens, without comments, docstrings and layout."""
    source = path.read_text()
    docstrings = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(
            node
        ):
            docstrings.add((node.body[0].lineno, node.body[0].col_offset))
    found = tokenize.generate_tokens(io.StringIO(source).readline)
    return sum(token.type not in LAYOUT and token.start not in docstrings for token in found)


def test_the_source_is_small() -> None:
    assert sum(map(tokens, MODULES.values())) <= MAX_TOKENS


@pytest.mark.parametrize("module", sorted(MODULES))
def test_files_and_classes_fit_a_reader(module: str) -> None:
    source = MODULES[module].read_text()
    assert source.count("\n") <= 350
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            assert node.end_lineno - node.lineno < 200, node.name
            methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
            assert len(methods) <= 15, node.name


def test_the_loop_fits_a_screen_or_two() -> None:
    assert MODULES["ppo.trainer"].read_text().count("\n") <= 136
