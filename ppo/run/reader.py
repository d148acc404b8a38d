"""Read what a run has written to its folder."""

import csv
import json
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
        rows = _read_table(folder / METRICS)
        metrics = {name: np.array([float(row[name] or "nan") for row in rows]) for name in rows[0]}
        if not metrics.keys() >= {"step", "seconds", RETURN} or "env_name" not in config:
            raise ValueError("columns are missing")
    except (OSError, ValueError, TypeError, KeyError, IndexError, csv.Error) as error:
        raise ConfigError(
            f"{folder} is no run that can be plotted ({error}): give a run's folder"
        ) from error
    return RunRecord(folder, config, metrics)


def read_rows(folder: Path, iteration: int) -> list[Row]:
    """Return the rows of metrics.csv up to an iteration: the state after later ones was not saved.
    Torn rows are left out; without a readable file there are none."""
    try:
        rows = _read_table(folder / METRICS)
    except (OSError, ValueError, csv.Error):
        return []
    return [
        row for row in rows if None not in row.values() and int(row["iteration"] or 0) <= iteration
    ]


def _read_table(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file, strict=True))
