"""README.md and docs/ quote results of one commit, the one that CHANGELOG.md names."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MEASURED = re.compile(r"measured at commit `(\w{7,})`")
HASH = re.compile(r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7}\b")
QUOTED = (
    "latency/latency",
    "learning/learning",
    "ranks/speed",
    "reliability/faults",
    "reliability/kills",
    "solve/solve",
    "throughput/scaling",
    "throughput/throughput",
)


def release() -> str:
    found = MEASURED.search((ROOT / "CHANGELOG.md").read_text())
    assert found
    return found[1]


def commits_of(result: Any) -> Iterator[str]:
    """Yield the commits of all measurements of the trainer: the one that was found to compute the
    same bits, if there is one, stands for that of a run."""
    if isinstance(result, dict):
        if "commit" in result:
            yield result.get("same_bits_at", result["commit"])
        for name, part in result.items():
            if name != "sb3":  # whose runs are not of the trainer
                yield from commits_of(part)


@pytest.mark.parametrize("name", QUOTED)
def test_results_that_are_quoted_are_of_the_release(name: str) -> None:
    results = json.loads((ROOT / "results" / f"{name}.json").read_text())
    assert {*commits_of(results)} == {release()}


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))], ids=str)
def test_pages_quote_no_other_commit(page: Path) -> None:
    assert {*HASH.findall(page.read_text())} <= {release()}


def test_an_older_result_is_noticed() -> None:
    older = {"a": {"commit": "1234567", "runs": []}, "b": {"commit": "abcdef0"}}
    assert [*commits_of({**older, "sb3": {"commit": "7654321"}})] == ["1234567", "abcdef0"]
    assert [*commits_of({"commit": "1234567", "same_bits_at": "abcdef0"})] == ["abcdef0"]
    assert HASH.findall("at 1180d43, 1900000 steps, defaced") == ["1180d43"]
