"""Read the settings and metrics in a run's folder."""

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
    """A run's settings, and its metrics as arrays (iterations,) with NaN for missing values."""

    folder: Path
    config: dict[str, Any]
    metrics: dict[str, np.ndarray]

    @property
    def name(self) -> str:
        """The name of the folder, with that of its parent unless it is runs/."""
        return "/".join(self.folder.absolute().parts[-2:]).removeprefix("runs/")


def read_run(folder: Path) -> RunRecord:
    """Read a run's config.json and metrics.csv.

    Raises ConfigError unless it is the folder of a run that has finished an iteration, or if
    metrics.csv is damaged.
    """
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
    """Return the rows of metrics.csv up to an iteration, the last one whose state was saved.

    Values are texts. There are no rows without a readable file. A damaged file is renamed, since it
    will be written anew, and an event names it. run: ppo.run.folder.RunFolder.
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
    """Return the valid rows of metrics.csv, as texts, and a description of the first other line.

    The description is "" if there is none. An unfinished last line is ignored. Raises OSError.
    """
    header, *lines = path.read_text(errors="replace").split("\n")
    names = header.split(",")
    rows: dict[int, Row] = {}
    problem = ""
    if lines and "iteration" not in names:
        problem = f"{path} begins with another line than its header"
    for number, line in enumerate(lines[:-1], 2):  # the last is "" or unfinished
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
