"""Learning curves of runs, from the files that they have written."""

import csv
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ppo.analysis.statistics import confidence_interval, interquartile_mean
from ppo.config.config import ELSEWHERE
from ppo.errors import ConfigError
from ppo.run.folder import atomic_write

RETURN = "episode_return_mean"
OWN = {
    "seed",
    "run_id",
    "versions",
    "git_commit",
    "num_workers",
    *ELSEWHERE,
}  # that runs to be compared may differ in
POINTS = 200  # at which runs of several seeds are compared
PANELS = {  # below the curves
    "approx_kl": "KL of an update",
    "clip_fraction": "clipped ratios",
    "entropy": "entropy",
    "explained_variance": "explained variance",
    "steps_per_second": "steps/s",
}


class Run(NamedTuple):
    """What a run has written: its config, and its metrics as arrays (iterations,), NaN where there is none."""

    folder: Path
    config: dict[str, Any]
    metrics: dict[str, np.ndarray]


def read_run(folder: Path) -> Run:
    """Raises ConfigError if it is not the folder of a run that has finished an iteration."""
    try:
        config = json.loads((folder / "config.json").read_text())
        with (folder / "metrics.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        metrics = {name: np.array([float(row[name] or "nan") for row in rows]) for name in rows[0]}
        if not metrics.keys() >= {"step", "seconds", RETURN} or "env_name" not in config:
            raise ValueError("columns are missing")
        return Run(folder, config, metrics)
    except (OSError, ValueError, TypeError, KeyError, IndexError) as error:
        raise ConfigError(
            f"{folder} is no run that can be plotted ({error}): give a run's folder"
        ) from error


def alike(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs in groups of the same settings but for the seed."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        settings = {name: value for name, value in run.config.items() if name not in OWN}
        groups.setdefault(json.dumps(settings, sort_keys=True), []).append(run)
    return list(groups.values())


def aggregate(runs: Sequence[Run], x: str, y: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of several runs the interquartile mean of y at common x, as far as all of them reach: x and that (points,), and
    its 95 % interval (2, points)."""
    lines = [
        (run.metrics[x][known], run.metrics[y][known])
        for run in runs
        for known in [~np.isnan(run.metrics[y])]
    ]
    grid = np.linspace(max(at[0] for at, _ in lines), min(at[-1] for at, _ in lines), POINTS)
    values = np.stack([np.interp(grid, at, value) for at, value in lines])
    return grid, interquartile_mean(values), confidence_interval(values, interquartile_mean)


def draw(runs: Sequence[Run], path: Path) -> None:
    """Write a figure, .png or .svg: returns against steps and against time, and how learning went. Raises OSError."""
    logging.getLogger("matplotlib").setLevel(
        logging.ERROR
    )  # when first used it says that it looks for fonts
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # heavy
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, MaxNLocator

    figure = Figure((12, 7), layout="constrained")
    FigureCanvasAgg(figure)
    parts: Any = figure.subfigures(2, 1, height_ratios=(3, 1.3))
    above, below = parts
    groups = alike(runs)
    for axes, x, label in zip(
        above.subplots(1, 2), ("step", "seconds"), ("environment steps", "seconds"), strict=True
    ):
        for group in groups:
            _draw_group(axes, group, x, RETURN, is_labelled=True)
        axes.set(xlabel=label, ylabel="mean return of 100 episodes")
        axes.grid(alpha=0.3)
    if axes.has_data():
        axes.legend(fontsize="small")
    for axes, (name, label) in zip(below.subplots(1, len(PANELS)), PANELS.items(), strict=True):
        for group in groups:
            _draw_group(axes, [run for run in group if name in run.metrics], "step", name)
        axes.set_title(label, fontsize="small")
        axes.tick_params(labelsize="x-small")
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(EngFormatter())
        axes.grid(alpha=0.3)
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=120)


def _draw_group(axes: Any, runs: Sequence[Run], x: str, y: str, is_labelled: bool = False) -> None:
    """Of one run its curve, of several their interquartile mean and its interval."""
    runs = [run for run in runs if not np.isnan(run.metrics[y]).all()]
    if len(runs) == 1:
        label = runs[0].folder.absolute().name if is_labelled else None
        axes.plot(runs[0].metrics[x], runs[0].metrics[y], label=label)
    elif runs:
        grid, mean, interval = aggregate(runs, x, y)
        label = f"{runs[0].config['env_name']}: IQM of {len(runs)} seeds, 95 % interval"
        (line,) = axes.plot(grid, mean, label=label if is_labelled else None)
        axes.fill_between(grid, *interval, color=line.get_color(), alpha=0.25, linewidth=0)
