"""Build the documentation's site: python docs/build_site.py [FOLDER]

Zensical reads one folder, so README.md, the home page, and docs/ are copied to FOLDER/pages. Links
between pages stay; those to other files lead to the repository's, so that a page is right on GitHub
and on the site. The site is in FOLDER/site; FOLDER is build/docs unless it is given.
"""

import os
import re
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

from ppo.commands import all_commands

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"(!?)(\[[^\[\]]*\])\(([^)\s#:]+)(#[^)\s]*)?\)")  # not to https://


def build(folder: Path) -> None:
    """Write pages, configuration and site to a folder. Ends the process with a sentence if a link
    leads nowhere, or if the generator warns of anything."""
    package = ConfigParser(interpolation=None)
    package.read(ROOT / "setup.cfg")
    repository = package["metadata"]["url"]
    if name := os.environ.get("GITHUB_REPOSITORY"):  # such as a fork's own
        repository = f"{os.environ['GITHUB_SERVER_URL']}/{name}"
    settings = (DOCS / "zensical.toml").read_text().replace("REPOSITORY", repository)
    if address := os.environ.get("SITE_URL"):
        settings = settings.replace("[project]\n", f'[project]\nsite_url = "{address}/"\n', 1)
    shutil.rmtree(folder / "pages", ignore_errors=True)
    places = {page: page.relative_to(DOCS) for page in DOCS.rglob("*.md")}
    places |= {ROOT / name: Path(name) for name in ("CONTRIBUTING.md", "CHANGELOG.md")}
    places[ROOT / "README.md"] = Path("index.md")
    for page in places:
        copy(page, places, folder / "pages", repository)
    (folder / "pages" / "flags.md").write_text(flags_page())
    (folder / "zensical.toml").write_text(settings)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # of ruff, for signatures
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean"],
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1", "PYTHONPATH": str(ROOT), "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    print(done.stdout, end="")
    # --strict does not count what mkdocstrings logs.
    if done.returncode or re.search(r"\b(warning|error)\b", done.stdout, re.IGNORECASE):
        sys.exit("the site has warnings: mend the pages that they name")


def flags_page() -> str:
    """Return the page of what each command's --help prints, 110 columns wide."""
    sections = ["# Flags\n"]
    for command in all_commands():
        shown = subprocess.run(
            [sys.executable, "-m", "ppo", command, "--help=all"],
            env={**os.environ, "COLUMNS": "112"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        sections.append(f"## {command}\n\n```\n{shown}```\n")
    return "\n".join(sections)


def copy(page: Path, places: dict[Path, Path], folder: Path, repository: str) -> None:
    """Copy a page, with its links as they must be on the site, and the images that it shows.

    places: of all pages in the folder, by their files."""

    def on_site(match: re.Match[str]) -> str:
        mark, text, target, heading = match.groups(default="")
        file = (page.parent / target).resolve()
        if not file.exists():
            sys.exit(f"{page.relative_to(ROOT)}: {target} does not exist: mend the link")
        path = file.relative_to(ROOT)
        if mark:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, folder / path)
        elif file not in places:
            kind = "tree" if file.is_dir() else "blob"
            return f"{text}({repository}/{kind}/main/{path}{heading})"
        link = os.path.relpath(places.get(file, path), places[page].parent)
        return f"{mark}{text}({link}{heading})"

    parts = FENCED.split(page.read_text())
    for i, part in enumerate(parts[::2]):
        # In code in a table, GitHub needs \\| for |, and Python-Markdown shows it.
        part = CODE.sub(lambda code: code[0].replace(r"\|", "|"), part)
        parts[2 * i] = LINK.sub(on_site, part)
    place = folder / places[page]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("".join(parts))


if __name__ == "__main__":
    build(Path(*sys.argv[1:2] or ["build/docs"]).absolute())
