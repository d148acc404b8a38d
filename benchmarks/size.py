"""Lines and tokens of the source, room by room: python -m benchmarks.size [--installed]

Tokens are Python's, without comments, docstrings and layout; of pages, words. With --installed
instead: the megabytes of each package that a plain `pip install ppo-trainer` brings, as they are
installed here, but for torch and what only torch needs. An editable install of the trainer itself
counts as nothing.
"""

import ast
import io
import tokenize
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from benchmarks import harness

LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def count_tokens(path: Path) -> int:
    """Count a Python file's tokens, without comments, docstrings and layout."""
    source = path.read_text()
    docstrings = {
        (node.body[0].lineno, node.body[0].col_offset)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node)
    }
    found = tokenize.generate_tokens(io.StringIO(source).readline)
    return sum(token.type not in LAYOUT and token.start not in docstrings for token in found)


def count(paths: list[Path]) -> tuple[int, int]:
    """Count the lines of files, and their tokens, or words."""
    texts = {path: path.read_text() for path in paths}
    lines = sum(text.count("\n") for text in texts.values())
    tokens = sum(
        count_tokens(path) if path.suffix == ".py" else len(text.split())
        for path, text in texts.items()
    )
    return lines, tokens


def needed_packages(line: str, found: set[str]) -> set[str]:
    """Add to found what a requirement, such as gymnasium[atari], needs, but for torch."""
    requirement = Requirement(line)
    name = requirement.name.lower().replace("_", "-")
    for extra in ("", *requirement.extras):
        if name == "torch" or (key := f"{name}[{extra}]") in found:
            continue
        found.add(key)
        for needed in map(Requirement, metadata.requires(name) or ()):
            if not needed.marker or needed.marker.evaluate({"extra": extra}):
                needed_packages(str(needed), found)
    return found


def installed_bytes(name: str) -> int:
    """Sum the sizes of a package's files."""
    files = map(Path, map(str, (file.locate() for file in metadata.files(name) or ())))
    return sum(file.stat().st_size for file in files if file.is_file())


def show_installed() -> None:
    """Print the size of each package, the largest first, and of all."""
    names = {key.partition("[")[0] for key in needed_packages("ppo-trainer", set())}
    sizes = {name: installed_bytes(name) / 1e6 for name in names}
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        print(f"{name:24}{sizes[name]:8.1f} MB  {metadata.version(name)}")
    print(f"{'together':24}{sum(sizes.values()):8.1f} MB")


def main() -> None:
    parser = harness.make_parser(__doc__)
    parser.add_argument("--installed", action="store_true", help="sizes of installed packages")
    if parser.parse_args().installed:
        show_installed()
        return
    root = harness.ROOT
    source = {
        "main.py": [root / "main.py"],
        "ppo": sorted((root / "ppo").glob("*.py")),
        **{
            str(folder.relative_to(root)): sorted(folder.rglob("*.py"))
            for folder in (*sorted((root / "ppo").iterdir()), root / "envs", root / "models")
            if folder.is_dir() and not folder.is_symlink() and any(folder.glob("*.py"))
        },
    }
    for name, paths in source.items():
        show(name, *count(paths))
    show("source", *count([path for paths in source.values() for path in paths]))
    for name in ("tests", "benchmarks", "examples"):
        show(name, *count(sorted((root / name).rglob("*.py"))))
    show("docs (words)", *count([root / "README.md", *sorted((root / "docs").rglob("*.md"))]))


def show(name: str, lines: int, tokens: int) -> None:
    print(f"{name:16}{lines:8,} lines{tokens:10,} tokens")


if __name__ == "__main__":
    main()
