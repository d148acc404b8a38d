"""Write docs/flags.md, what --help prints: python -m tests.flags_page"""

import os
import subprocess
import sys

from ppo.commands import all_commands
from tests.running import ROOT

PAGE = ROOT / "docs" / "flags.md"
ABOUT = """# Flags

What `python main.py --help` (or `ppo --help`, or `python -m ppo --help`) prints, and `--help` after
each command, 110 columns wide. Flags take hyphens or underscores, `--name=value` or `--name value`;
booleans take `--x`, `--no_x`, `--x=True` and `--x=False`.
"""


def help_of(command: str) -> str:
    """Return what a command's --help prints."""
    return subprocess.run(
        [sys.executable, "main.py", command, "--help"],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "112"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


if __name__ == "__main__":
    sections = [f"## {command}\n\n```\n{help_of(command)}```\n" for command in all_commands()]
    PAGE.write_text("\n".join([ABOUT, *sections]))
