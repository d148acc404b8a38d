"""ppo runs: a table of the runs in a folder."""

import csv
import shutil
import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ppo.errors import ConfigError
from ppo.extras.curves import EVALUATION, RETURN, SUCCESS, Record, refuse, runs_of, short

TEXTS = "run", "checkpoint", "state", "environment"  # columns; numbers are aligned at the right
LEFT_OUT = "time", "of", "environment", "episodes", "std", "step", "checkpoint"  # if narrow


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
    runs = [*map(Record, runs_of(folder))]
    if not runs:
        raise ConfigError(f"{folder} contains no runs: give another folder")
    table = table_of(runs)
    if options.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows(table)
        return
    start = f"{folder}/"
    for row in table:
        row[0] = str(row[0]).removeprefix(start)
    print_table(table)


def print_table(table: list[list[Any]]) -> None:
    """Print a table, the first row of which names its columns, fewer in a narrow terminal."""
    columns = {}
    for name, *values in zip(*table, strict=True):
        text = short if name in ("steps", "of") else text_of
        columns[name] = [name, *map(text, values)]
    room = shutil.get_terminal_size((10_000, 1)).columns  # very many, if there is no terminal
    for name in LEFT_OUT:
        if len(_lines(columns)[0]) > room:
            columns.pop(name, None)
    for line in _lines(columns):
        print(line.rstrip())


def _lines(columns: dict[str, list[str]]) -> list[str]:
    aligned = []
    for name, texts in columns.items():
        width = max(map(len, texts))
        side = "<" if name in TEXTS else ">"
        aligned.append([f"{x:{side}{width}}" for x in texts])
    return [*map("  ".join, zip(*aligned, strict=True))]


def table_of(runs: list[Record]) -> list[list[Any]]:
    """Return the names of columns, and a row for each run."""
    rows = [*map(row_of, runs)]
    names = [*rows[0]]
    if all(row["success"] is None for row in rows):
        names.remove("success")
    values = [[*map(row.get, names)] for row in rows]
    return [names, *values]


def row_of(run: Record) -> dict[str, Any]:
    seconds = run.last("seconds") or 0
    return {
        "run": run.folder,
        "return": run.last(RETURN),
        "best": run.best(),
        "last": run.last(EVALUATION),
        "success": run.last(SUCCESS),
        "steps": run.step,
        "of": run.total_steps,
        "state": run.state,
        "environment": run.config["env_name"],
        "time": timedelta(seconds=round(seconds)),
    }


def text_of(value: Any) -> str:
    if value is None:
        return "-"
    if type(value) is int:
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)
