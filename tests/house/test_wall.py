"""The wall between the core and its extras: the core names none of them.

Names that an extra declares are those of its flags, exports and modules, of the public classes in
them, and, as texts, those of its commands, loggers, networks, faults, forms and tables."""

import ast
import builtins
import re
from collections import defaultdict

from ppo.config.config import Config
from ppo.extensions import functions_of, names_of
from tests.running import ROOT

LOADER = {"ppo/extensions.py"}


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


def declared() -> tuple[set[str], set[str], set[str]]:
    """What extras declare: flags, public classes and exports, and names that are used as texts."""
    _, added = sources()
    kinds = {*Config.__mro__, *functions_of("play_flags"), *functions_of("spectators")}
    flags = {
        name
        for kind in kinds
        if kind.__module__.startswith("ppo.extras")
        for name in kind.__annotations__
    }
    classes = {*names_of("exports")}
    for name in added:
        tree = ast.parse((ROOT / name).read_text())
        classes |= {
            node.name
            for node in tree.body
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        }
    fields = ("loggers", "models", "faults", "forms", "columns")
    texts = {name for field in fields for name in names_of(field)}
    texts |= {f"ppo {name}" for name in names_of("commands")}
    return flags, classes - own_names(), texts


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
    flags, classes, texts = declared()
    core, added = sources()
    modules = {module_of(name) for name in added}
    names: dict[str, set[str]] = defaultdict(set)
    for path in core:
        if path in LOADER:
            continue
        tree = ast.parse((ROOT / path).read_text())
        imported = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                if ast.unparse(node.value) not in imported:  # gc.freeze is none of ours
                    names[path] |= {node.attr} & (flags | classes)
            elif isinstance(node, ast.Name):
                names[path] |= {node.id} & (classes - {*dir(builtins)})
            elif isinstance(node, (ast.alias, ast.AnnAssign)):
                name = node.name if isinstance(node, ast.alias) else ast.unparse(node.target)
                names[path] |= {name.rpartition(".")[2]} & (flags | classes)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                words = {*re.findall(r"--(\w+)", node.value), *re.findall(r"ppo \w+", node.value)}
                names[path] |= {node.value, *words} & (flags | classes | texts)
                if "ppo.extras" in node.value:
                    names[path].add("ppo.extras")
            if isinstance(node, ast.ImportFrom):
                module = str(node.module)
                names[path] |= {module} & modules
                if module.startswith("ppo.extras"):
                    names[path].add("ppo.extras")
    return {path: sorted(names[path]) for path in sorted(names) if names[path]}


def test_the_core_names_no_extra() -> None:
    assert not found()
