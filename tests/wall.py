"""What the core may name: write tests/wall.json, the exceptions, by python -m tests.wall

Names that an extra declares are those of its flags, commands, loggers and exports, of its modules,
and of the public classes in them. Features that are not in ppo/extras yet count as if they were."""

import ast
import json
import re
from collections import defaultdict
from pathlib import Path

from ppo.config.config import Config
from ppo.extensions import names_of
from tests.running import ROOT

EXCEPTIONS = Path(__file__).with_name("wall.json")
LOADER = {"ppo/extensions.py"}
# Flags of features that are still in the core.
FLAGS_TO_MOVE = {"nested": "normalize_keys"}


def sources() -> tuple[list[str], list[str]]:
    """The files of the core, and those of extras, as paths from the root."""
    files = [ROOT / "main.py"]
    for folder in ("ppo", "envs", "models"):
        files += sorted((ROOT / folder).rglob("*.py"))
    names = [str(path.relative_to(ROOT)) for path in files]
    names = [name for name in names if not name.startswith(("ppo/envs/", "ppo/models/"))]
    added = [name for name in names if name.startswith("ppo/extras/")]
    return [name for name in names if name not in added], added


def module_of(name: str) -> str:
    """The module of a file, as the trainer imports it."""
    module = name.removesuffix(".py").replace("/", ".")
    return module if module.startswith("ppo.") else f"ppo.{module}"


def declared() -> tuple[set[str], set[str]]:
    """The flags of extras, and what else they declare by name."""
    _, added = sources()
    flags = {name for names in FLAGS_TO_MOVE.values() for name in names.split()}
    flags |= {
        name
        for base in Config.__mro__
        if base.__module__.startswith("ppo.extras")
        for name in base.__annotations__
    }
    others = {*names_of("commands"), *names_of("loggers"), *names_of("exports")}
    for name in added:
        tree = ast.parse((ROOT / name).read_text())
        others |= {
            node.name
            for node in tree.body
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        }
    return flags, others - own_names()


def own_names() -> set[str]:
    """The public classes and types that the core itself declares, some by names that extras use."""
    core, _ = sources()
    names = set()
    for path in core:
        for node in ast.parse((ROOT / path).read_text()).body:
            if isinstance(node, ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Assign):
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def found() -> dict[str, list[str]]:
    """What each file of the core names that an extra declares."""
    flags, others = declared()
    core, added = sources()
    modules = {module_of(name) for name in added}
    names: dict[str, set[str]] = defaultdict(set)
    for path in core:
        if path in LOADER:
            continue
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            if isinstance(node, ast.Attribute):
                names[path] |= {node.attr} & (flags | others)
            elif isinstance(node, ast.Name):
                names[path] |= {node.id} & others
            elif isinstance(node, (ast.alias, ast.AnnAssign)):
                name = node.name if isinstance(node, ast.alias) else ast.unparse(node.target)
                names[path] |= {name.rpartition(".")[2]} & (flags | others)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                words = {*re.findall(r"--(\w+)", node.value)}
                names[path] |= ({node.value} | words) & flags | {node.value} & others
                if "ppo.extras" in node.value:
                    names[path].add("ppo.extras")
            if isinstance(node, ast.ImportFrom):
                module = str(node.module)
                names[path] |= {module} & modules
                if module.startswith("ppo.extras"):
                    names[path].add("ppo.extras")
    return {path: sorted(names[path]) for path in sorted(names) if names[path]}


if __name__ == "__main__":
    EXCEPTIONS.write_text(json.dumps(found(), indent=1) + "\n")
