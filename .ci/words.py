"""What .ci/words.txt lists sounds translated, and may occur once in a thousand words of text."""

import re
from pathlib import Path

pages = [Path("README.md"), Path("CONTRIBUTING.md"), Path("AGENTS.md"), *Path("docs").glob("*.md")]
text = " ".join(page.read_text() for page in pages)
for folder in ("ppo", "envs", "models"):
    for path in Path(folder).rglob("*.py"):  # docstrings, comments and messages
        text += " ".join(
            re.findall(r'""".*?"""|#[^\n]*|"[^"\n]{20,}"', path.read_text(), re.DOTALL)
        )
for word in Path(".ci/words.txt").read_text().splitlines():
    share = 1000 * len(re.findall(rf"\b{word}\b", text)) / len(text.split())
    if share > 1:
        raise SystemExit(f"{word} occurs {share:.1f} times in a thousand words")
