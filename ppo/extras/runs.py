"""ppo runs: a table of the runs in a folder."""

import csv
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from ppo.errors import ConfigError
from ppo.extras.curves import Record, folders_in, refuse

HEAD = ["run", "state", "environment", "steps", "of", "return", "evaluation", "time"]


@dataclass(frozen=True)
class Flags:
    folder: str = "runs"
    """Folder in which to look for runs, at any depth."""
    csv: bool = False
    """Print comma-separated values, with all digits."""


def main(words: list[str], options: Flags, flags: dict[str, Any]) -> None:
    """Print a row for each run, the newest last. Raises ConfigError if there are none."""
    refuse(flags)
    folder = words[0] if words else options.folder
    folders = folders_in(Path(folder))
    runs = [*map(Record, folders)]
    if not runs:
        raise ConfigError(f"--folder={folder} contains no runs: use another")
    rows = [HEAD, *map(row_of, runs)]
    if options.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows(rows)
        return
    table = [[*map(text_of, row)] for row in rows]
    columns = zip(*table, strict=True)
    widths = [max(map(len, column)) for column in columns]
    for cells in table:
        padded = map(str.ljust, cells, widths)
        print("  ".join(padded).rstrip())


def row_of(run: Record) -> list[Any]:
    """Return the values of HEAD."""
    seconds = run.last("seconds") or 0
    return [
        run.folder,
        run.state,
        run.config["env_name"],
        run.step,
        run.total_steps,
        run.last("episode_return_mean"),
        run.evaluation(),
        timedelta(seconds=round(seconds)),
    ]


def text_of(value: Any) -> str:
    if value is None:
        return "-"
    if type(value) is int:
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)
