"""Read what a run has written to its folder."""

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ppo.errors import ConfigError

METRICS = "metrics.csv"
RETURN = "episode_return_mean"
Row = dict[str, Any]


class RunRecord(NamedTuple):
    """A run's settings, and its metrics as arrays (iterations,), NaN where there is no value."""

    folder: Path
    config: dict[str, Any]
    metrics: dict[str, np.ndarray]


def read_run(folder: Path) -> RunRecord:
    """Raises ConfigError unless it is the folder of a run that has finished an iteration."""
    try:
        config = json.loads((folder / "config.json").read_text())
        rows, problem = _read_table(folder / METRICS)
        if problem or not rows:
            raise ValueError(problem or f"{METRICS} has no rows")
        metrics = {name: np.array([float(row[name] or "nan") for row in rows]) for name in rows[0]}
        if RETURN not in metrics or "env_name" not in config:
            raise ValueError("columns are missing")
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"{folder} is no run that can be plotted ({error}): give a run's folder"
        ) from error
    return RunRecord(folder, config, metrics)


def read_rows(run, iteration: int) -> list[Row]:
    """Return the rows of metrics.csv up to an iteration: the state after later ones was not saved.

    Without a readable file there are none. A damaged one is set aside, for it will be written anew,
    and named by an event.
    """
    path = run.path / METRICS
    try:
        rows, problem = _read_table(path)
        if problem:
            aside = path.rename(f"{path}.damaged-{time.time_ns()}")
            run.event(
                "metrics_damaged", f"{problem}: it is kept as {aside}, its other rows are used"
            )
    except OSError:
        return []
    return [row for row in rows if int(row["iteration"]) <= iteration]


def _read_table(path: Path) -> tuple[list[Row], str]:
    """Read the whole lines of metrics.csv: return rows of numbers, and what is wrong with others.
    Raises OSError."""
    header, *lines = path.read_text(errors="replace").split("\n")
    names = header.split(",")
    rows: dict[int, Row] = {}
    problem = ""
    if lines and "iteration" not in names:
        problem = f"{path} begins with another line than its header"
    for number, line in enumerate(lines[:-1], 2):  # nothing follows the end of the last whole one
        try:
            row = dict(zip(names, line.split(","), strict=True))
            for text in row.values():
                float(text or "nan")
            float(row["seconds"])
            int(row["step"])
            rows[int(row["iteration"])] = row
        except (KeyError, ValueError):
            problem = problem or f"line {number} of {path} is no row of numbers"
    return list(rows.values()), problem
