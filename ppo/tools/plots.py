"""Draw learning curves of runs."""

import json
import logging
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
from numpy import ndarray

from ppo.commands.shared import new_file
from ppo.config.config import Config, run_folder
from ppo.config.flags import Flags, flag
from ppo.run.reader import RETURN, RunRecord, read_run
from ppo.run.statistics import confidence_interval, interquartile_mean
from ppo.system.files import atomic_write
from ppo.system.imports import extra

POINTS = 200  # of a curve of several seeds
PANELS = {  # small plots below the learning curves: metrics and their titles
    "approx_kl": "KL of an update",
    "clip_fraction": "clipped ratios",
    "entropy": "entropy",
    "explained_variance": "explained variance",
    "steps_per_second": "steps/s",
}


def group_by_settings(runs: Iterable[RunRecord]) -> list[list[RunRecord]]:
    """Group runs whose settings differ only in the seed, the number of workers and flags of scope
    "run"; versions and commits may differ, too."""
    ignored = {
        "seed",
        "run_id",
        "launch",
        "versions",
        "git_commit",
        "num_workers",
        *Config.names(scope="run"),
    }
    groups: dict[str, list[RunRecord]] = {}
    for run in runs:
        settings = {name: value for name, value in run.config.items() if name not in ignored}
        groups.setdefault(json.dumps(settings, sort_keys=True), []).append(run)
    return list(groups.values())


def name_of(group: Sequence[RunRecord]) -> str:
    """Return the label of the curve of one run, or of several that differ only by their seed."""
    if len(group) == 1:
        return group[0].name
    return f"{group[0].config['env_name']}: IQM of {len(group)} seeds, 95 % interval"


def with_values(runs: Iterable[RunRecord], name: str) -> list[RunRecord]:
    """Return the runs in which a metric has any finite value."""
    return [run for run in runs if np.isfinite(run.metrics.get(name, np.nan)).any()]


def curve(runs: Sequence[RunRecord], x: str, y: str) -> list[ndarray]:
    """Return the curve of metric y over metric x, in columns (points,).

    Of one run these are x and y. Of several they are values of x that all of them reach, the
    interquartile means of y, interpolated there, and the lower and upper ends of the 95 % intervals
    of these means. Each run must have values of y.
    """
    if len(runs) == 1:
        return [runs[0].metrics[x], runs[0].metrics[y]]
    curves = []
    for run in runs:
        known = np.isfinite(run.metrics[y])
        curves.append((run.metrics[x][known], run.metrics[y][known]))
    start = max(xs[0] for xs, _ in curves)
    end = min(xs[-1] for xs, _ in curves)
    grid = np.linspace(start, end, POINTS)
    values = [np.interp(grid, xs, ys) for xs, ys in curves]
    interval = confidence_interval(values, interquartile_mean)
    return [grid, interquartile_mean(values), *interval]


def draw(runs: Sequence[RunRecord], path: Path) -> None:
    """Draw returns over steps and over seconds, and the metrics of PANELS, to a .png or .svg file.

    Raises OSError, and ConfigError if matplotlib is not installed.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it logs its search for fonts
    with extra("report"):
        from matplotlib import rc_context  # heavy
        from matplotlib.figure import Figure
        from matplotlib.ticker import EngFormatter, MaxNLocator

    with rc_context({"text.parse_math": False}), catch_warnings():  # a name may hold $
        simplefilter("ignore")  # about letters that the font does not have
        figure = Figure((12, 7), layout="constrained")
        parts: Any = figure.subfigures(2, 1, height_ratios=(3, 1.3))
        groups = group_by_settings(runs)
        labels = {"step": "environment steps", "seconds": "seconds"}
        for axes, (x, label) in zip(parts[0].subplots(1, 2), labels.items(), strict=True):
            _draw_curves(axes, groups, x, RETURN)
            axes.set(xlabel=label, ylabel="mean return of 100 episodes")
        if axes.has_data():
            axes.legend(fontsize="small")
        panels = parts[1].subplots(1, len(PANELS))
        for axes, (name, label) in zip(panels, PANELS.items(), strict=True):
            _draw_curves(axes, groups, "step", name)
            axes.set_title(label, fontsize="small")
            axes.tick_params(labelsize="x-small")
            axes.xaxis.set_major_locator(MaxNLocator(4))
            axes.xaxis.set_major_formatter(EngFormatter())
        with atomic_write(path) as temporary:
            figure.savefig(temporary, dpi=120)


def _draw_curves(axes, groups: Sequence[list[RunRecord]], x: str, y: str) -> None:
    """Draw the curve of each group that has one, and the interval of its means."""
    for group in groups:
        if runs := with_values(group, y):
            xs, ys, *interval = curve(runs, x, y)
            label = re.sub("^_", " _", name_of(runs))  # a legend leaves out what begins with _
            (line,) = axes.plot(xs, ys, label=label)
            if interval:
                axes.fill_between(xs, *interval, color=line.get_color(), alpha=0.25, linewidth=0)
    axes.grid(alpha=0.3)


class Plot(Flags):
    """Plot the learning curves of runs, those of several seeds with a 95 % interval."""

    runs: list[str] = flag((), "The folders of runs, or their names in runs/.", nargs="+")
    output: str = flag("curves.png", "New .png or .svg file.")

    def __call__(self) -> None:
        """Draw the picture. Raises ConfigError for a folder that is no run or a file that is
        unsuitable, OSError if writing fails."""
        path = new_file("--output=", self.output, (".png", ".svg"))
        draw([read_run(run_folder(name)) for name in self.runs], path)
        print(f"picture: {self.output}")
