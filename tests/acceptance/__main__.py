"""Ask a tree what the trainer promises:
python -m tests.acceptance [PART ...] [--tree=FOLDER] [--base=FOLDER] [--only=TEXT] [--jobs=N]

Parts: bits, faults (asked by default), files, flags, twins, worlds, edits, speed. --base: a tree of
2.0.1, which bits and speed are compared with; --only: cases whose names contain it. Each case is a
line: ok, FAILED with the reason, or "as marked" where a part's MARKS say that version 2 does not
keep it. Exit code 1 if a case has failed, or holds in spite of its mark.
"""

import argparse
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.acceptance.tree import Tree

EACH_STEP = ("bits", "faults")
PARTS = (*EACH_STEP, "files", "flags", "twins", "worlds", "edits", "speed")
ALONE = ("speed",)  # parts whose cases do not run side by side


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.acceptance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="default: those of each step")
    parser.add_argument("--tree", type=Path, default=Path.cwd())
    parser.add_argument("--base", type=Path)
    parser.add_argument("--only", action="append", default=[], metavar="TEXT")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    if wrong := set(given.parts) - {*PARTS}:
        parser.error(f"unknown part {min(wrong)}; give some of {', '.join(PARTS)}")
    return given


def ask(part: Any, name: str, tree: Tree, base: Tree | None, folder: Path) -> str:
    """Check a case in a folder of its own; return what is wrong, or nothing."""
    try:
        folder.mkdir(parents=True)
        return str(part.check(name, tree, base, folder) or "")
    except Exception:
        return traceback.format_exc()


def ask_all(label: str, given: argparse.Namespace, tree: Tree, parent: Path) -> int:
    """Ask the cases of a part; return how many are wrong."""
    part = import_module(f"tests.acceptance.{label}")
    base = Tree(given.base.resolve()) if given.base else None
    if base is None and getattr(part, "NEEDS_BASE", False):
        print(f"{label}: left out, give --base=FOLDER with a tree of 2.0.1")
        return 0
    marks = getattr(part, "MARKS", {}) if tree.version < 3 else {}

    def ask_one(number: int, name: str) -> bool:
        begin = time.monotonic()
        folder = parent / label / str(number)  # not the name, which has the words that must be said
        problem = ask(part, name, tree, base, folder)
        says = f"FAILED: {problem}" if problem else "ok"
        if mark := marks.get(name):
            says = f"as marked ({mark}): {problem}" if problem else f"HOLDS, but is marked: {mark}"
        print(f"{label}/{name}: {says} [{time.monotonic() - begin:.1f} s]\n", end="", flush=True)
        return bool(problem) != bool(mark)

    names = [x for x in part.CASES if not given.only or any(text in x for text in given.only)]
    begin = time.monotonic()
    with ThreadPoolExecutor(1 if label in ALONE else given.jobs) as threads:
        wrong = sum(threads.map(ask_one, range(len(names)), names))
    print(f"{label}: {len(names)} cases, {wrong} wrong, {time.monotonic() - begin:.0f} s")
    return wrong


def main() -> int:
    given = parse()
    tree = Tree(given.tree.resolve())
    with tempfile.TemporaryDirectory(prefix="acceptance-", ignore_cleanup_errors=True) as folder:
        parts = given.parts or EACH_STEP
        return int(sum(ask_all(label, given, tree, Path(folder)) for label in parts) > 0)


if __name__ == "__main__":
    sys.exit(main())
