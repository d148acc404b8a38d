"""Lines and tokens of the source, room by room: python -m benchmarks.size

Tokens are Python's, without comments, docstrings and layout; of pages, words.
"""

import ast
import io
import tokenize
from pathlib import Path

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


def main() -> None:
    harness.make_parser(__doc__).parse_args()
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
