"""Rules that the source keeps: imports go one way, and a worker starts light."""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ppo.extensions import extensions
from tests.running import ROOT

# A room may import the rooms before it, and itself; nothing imports back.
ROOMS = (
    ("ppo.errors",),
    ("ppo.system",),
    ("ppo.extensions",),
    ("ppo.guard",),
    ("ppo.envs", "ppo.models"),
    ("ppo.config",),
    ("ppo.peers",),
    ("ppo.algorithm",),
    ("ppo.run",),
    ("ppo.parts",),
    ("ppo.callbacks",),
    ("ppo.policy",),
    ("ppo.components",),
    ("ppo.monitor",),
    ("ppo.trainer",),
    ("ppo.commands",),
    ("ppo.__main__",),
    ("main",),
    ("ppo.extras",),
)
INEXACT = (
    "warning: resume is not exact: environments [0, 1] did not repeat their open episode, a new "
    "one began there\n"
)
EXTRAS = sorted(path.parent.name for path in (ROOT / "ppo" / "extras").glob("*/__init__.py"))
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
    """The project's modules that a module imports, wherever in it, but for types only, which
    imports nothing; extras only from extras (see test_wall.py)."""
    found = set()
    tree = ast.parse(MODULES[module].read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            base = str(node.module)
            names = {f"{base}.{alias.name}" for alias in node.names} & MODULES.keys()
            found |= names if len(names) == len(node.names) else names | {base}
    if not module.startswith("ppo.extras"):
        found = {name for name in found if not name.startswith("ppo.extras")}
    return found & MODULES.keys() - {module}


def room(module: str) -> str:
    """The room that a module is in."""
    parts = module.split(".")
    return next(name for n in (2, 1) if (name := ".".join(parts[:n])) in LEVELS)


def test_no_import_runs_back() -> None:
    back = {
        f"{module} imports {name}"
        for module in MODULES.keys() - {"ppo"}
        for name in imports(module)
        if room(name) != room(module) and LEVELS[room(name)] >= LEVELS[room(module)]
    }
    assert not back


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


@pytest.mark.slow
@pytest.mark.parametrize("left_out", ["extras", *EXTRAS])
def test_without_an_extra_a_run_is_trained_resumed_and_evaluated(
    left_out: str, tmp_path: Path
) -> None:
    """Every extra may be deleted, and so may all of them: those that need it are left out."""
    said = "".join(
        f"warning: the extension {name} is left out: it needs {left_out}\n"
        for name, extension in extensions().items()
        if left_out in extension.needs
    )
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("ppo", "envs", "models"):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=ignore)
    shutil.rmtree(tmp_path / "ppo" / "extras" / left_out.removeprefix("extras"))
    shutil.copy(ROOT / "main.py", tmp_path)
    sizes = ["--num_envs=2", "--num_steps=16", "--total_steps=64", "--num_workers=0"]
    train = ["CartPole-v1", *sizes, "--run_dir=run", "--eval_episodes=1"]
    for arguments in (
        ["train", *train],
        ["--resume=run", "--total_steps=96"],
        ["--help"],
        ["evaluate", "run", "--episodes=2"],
        ["evaluate", str(ROOT / "policies" / "CartPole-v1.safetensors"), "--episodes=1"],
    ):
        command = [sys.executable, "main.py", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        is_inexact = left_out in ("extras", "resume") and "--resume=run" in arguments
        assert (done.returncode, done.stderr) == (0, said + INEXACT * is_inexact), arguments
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] == 96
    command = [sys.executable, "main.py", "report", "run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    if left_out in ("extras", "tools"):
        assert done.returncode == 2
        assert "unknown command report; give one of train, evaluate, " in done.stderr
    else:
        assert done.returncode == 0
