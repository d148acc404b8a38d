"""Draw learning curves of runs."""

import io
import logging
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, simplefilter

import gymnasium
import numpy as np
from numpy import ndarray

from ppo.config.flags import Flags, flag
from ppo.errors import ConfigError, suggest
from ppo.extras.tools.groups import RUNS, Group, all_runs, read_groups
from ppo.run.intervals import confidence_interval, interquartile_mean
from ppo.run.reader import RETURN, RunRecord
from ppo.system.files import atomic_write, new_file
from ppo.system.imports import extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes  # heavy, as the next
    from matplotlib.figure import Figure

POINTS = 200  # of a curve
LABEL_WIDTH = 75  # characters of a line in a legend, of which two are side by side
MAX_DRAWN = 1e100  # absolute value: near the greatest float matplotlib overflows
COLORS = (  # legible on white and on black
    "#3b78c3",
    "#d9722e",
    "#3b9a57",
    "#a456b3",
    "#c43d4b",
    "#8a6d3b",
    "#2a9aa0",
    "#7a7f8a",
)
INK = "#010203"  # of text and grid in an SVG: stands for the colour of the page's text
UNITS = {"step": "environment steps", "seconds": "seconds"}  # metrics on the x axis
RETURNS = {
    RETURN: "mean return in training",
    "evaluation_return_mean": "mean return of evaluations",
}
PANELS = {  # small plots below the learning curves: metrics and their titles
    "approx_kl": "KL of an update",
    "clip_fraction": "clipped ratios",
    "entropy": "entropy",
    "explained_variance": "explained variance",
    "steps_per_second": "steps/s",
}


def with_values(runs: Iterable[RunRecord], name: str) -> list[RunRecord]:
    """Return the runs in which a metric has any value that can be drawn."""
    return [run for run in runs if name in run.metrics and _is_drawn(run.metrics[name]).any()]


def curve(runs: Sequence[RunRecord], x: str, y: str) -> list[ndarray]:
    """Return the curve of metric y over metric x in columns: x and y (points,), and perhaps the
    lower and the upper edge of a band.

    Of one run these are its values; of more than POINTS, each of POINTS parts gives its last x, and
    the mean, minimum and maximum of its y. Of several runs they are interquartile means of y, and
    the 95 % intervals of these means, interpolated at steps that all of the runs reach; x is the
    mean of what it is there, as one run may take longer than another. Each run must have values of
    y.
    """
    curves = []
    for run in runs:
        ys = run.metrics[y]
        drawn = _is_drawn(ys)
        if y == "explained_variance":  # far below 0 it means nothing
            ys = np.clip(ys, -1, 1)
        curves.append((run.metrics["step"][drawn], run.metrics[x][drawn], ys[drawn]))
    if len(curves) == 1:
        return _thin(*curves[0][1:])
    start = max(steps[0] for steps, _, _ in curves)
    end = min(steps[-1] for steps, _, _ in curves)
    grid = np.linspace(start, end, POINTS)
    places = [np.interp(grid, steps, xs) for steps, xs, _ in curves]
    values = [np.interp(grid, steps, ys) for steps, _, ys in curves]
    interval = confidence_interval(values, interquartile_mean)
    assert interval is not None
    xs = grid if x == "step" else np.mean(places, 0)
    return [xs, interquartile_mean(values), *interval]


def draw(groups: Sequence[Group], path: Path, is_new: bool = False) -> None:
    """Draw returns over steps and over seconds, and the metrics of PANELS, to a .png, .svg or .pdf
    file. is_new: of atomic_write.

    Raises OSError, and ConfigError if matplotlib is not installed.
    """
    figure = _make_figure(12, 7)
    top = _add_legend(figure, groups, columns=2)
    # Fixed places take half of the time of matplotlib's layouts.
    large: Any = figure.add_gridspec(1, 2, left=0.06, right=0.99, bottom=0.41, top=top, wspace=0.15)
    small: Any = figure.add_gridspec(1, len(PANELS), left=0.05, right=0.99, bottom=0.05, top=0.28)
    for axes, (x, label) in zip(large.subplots(), UNITS.items(), strict=True):
        _draw_curves(axes, groups, x, RETURN)
        axes.set(xlabel=label, ylabel=RETURNS[RETURN])
    for axes, (name, title) in zip(small.subplots(), PANELS.items(), strict=True):
        _draw_curves(axes, groups, "step", name)
        axes.set_title(title, fontsize="small")
        axes.tick_params(labelsize="x-small")
    _save(figure, path, is_new)


def draw_metric(groups: Sequence[Group], metric: str, path: Path) -> None:
    """Draw one metric over steps, in one panel, to a new .png, .svg or .pdf file.

    metric: its column of metrics.csv, of the environment's own with or without env/. Raises
    ConfigError if no run has values of it; else as draw."""
    runs = all_runs(groups)
    known = dict.fromkeys(name for run in runs for name in run.metrics if with_values([run], name))
    name = metric if metric in known else f"env/{metric}"
    if name not in known:
        hint = suggest(metric, known, f"give one of {', '.join(known)}")
        raise ConfigError(f"--metric={metric}: no run has values of it: {hint}")
    figure = _make_figure(8, 5)
    axes = figure.add_axes((0.1, 0.12, 0.87, _add_legend(figure, groups, columns=1) - 0.12))
    _draw_curves(axes, groups, "step", name)
    axes.set_xlabel(UNITS["step"])
    axes.set_ylabel({**RETURNS, **PANELS}.get(name, name)).set_parse_math(False)
    _save(figure, path, is_new=True)


def _add_legend(figure: "Figure", groups: Sequence[Group], columns: int) -> float:
    """Add a legend above the panels of a figure; return where their top is, as its share."""
    from matplotlib.lines import Line2D

    labels = [fill(group.label, LABEL_WIDTH) for group in groups]
    lines = [
        Line2D([], [], color=color, label=re.sub("^_", " _", label))  # a _ would hide it
        for color, label in zip(cycle(COLORS), labels)
    ]
    place: Any = {"loc": "upper left", "bbox_to_anchor": (0.05, 1), "ncols": columns}
    legend = figure.legend(handles=lines, fontsize="small", frameon=False, **place)
    for text in legend.get_texts():
        text.set_parse_math(False)  # a folder's name is not a formula
    rows = -(-sum(label.count("\n") + 1 for label in labels) // columns)
    return max(0.6, 0.96 - 0.19 * rows / figure.get_figheight())


def _save(figure: "Figure", path: Path, is_new: bool) -> None:
    """Save a figure to a file. is_new: of atomic_write. Raises OSError."""
    from matplotlib import rc_context  # heavy

    with atomic_write(path, is_new) as temporary, catch_warnings():
        simplefilter("ignore")  # about letters that the font does not have
        with rc_context({"pdf.fonttype": 42}):  # publishers refuse matplotlib's Type 3
            figure.savefig(temporary, dpi=120)


class SvgCharts:
    """Draw charts of one size as SVG elements, in turn on the same axes: to make new ones would
    take as long as to draw.

    width, height: in inches. Raises ConfigError if matplotlib is not installed.
    """

    def __init__(self, width: float, height: float) -> None:
        self.figure = _make_figure(width, height)
        self.axes = self.figure.add_axes((0.1, 0.14, 0.88, 0.82))
        self.axes.tick_params(which="both", length=0, pad=8, labelcolor=INK)
        self.axes.spines[:].set_visible(False)

    def draw(self, groups: Sequence[Group], x: str, y: str) -> str:
        """Return the curves of metric y over metric x, without a background; text has the colour
        and the font of the page around it. Its class is x. "" if no run has values."""
        runs = all_runs(groups)
        if not with_values(runs, y):
            return ""
        axes = self.axes
        for artist in (*axes.lines, *axes.collections):
            artist.remove()
        axes.relim()
        _draw_curves(axes, groups, x, y)
        if y in RETURNS and (target := target_of(runs)) is not None:
            axes.axhline(target, color=INK, linestyle="--", linewidth=1)
        axes.grid(color=INK)
        return _as_svg(self.figure, x, f"{x} {y}")


def target_of(runs: Sequence[RunRecord]) -> float | None:
    """Return the return at which gymnasium counts the environment as solved; None if it does not
    say, or if there are several environments."""
    (env_name, *others) = {run.config["env_name"] for run in runs}
    if others or ":" in env_name:  # gymnasium would import a module
        return None
    with suppress(gymnasium.error.Error):
        return gymnasium.spec(env_name).reward_threshold
    return None


def _make_figure(width: float, height: float) -> "Figure":
    """Return an empty figure. width, height: in inches. Raises ConfigError if matplotlib
    is not installed."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it logs its search for fonts
    with extra("report"):
        from matplotlib.figure import Figure  # heavy
    return Figure((width, height))


def _draw_curves(axes: "Axes", groups: Sequence[Group], x: str, y: str) -> None:
    """Draw the curve of each group that has one, with its band; over seconds on a logarithmic scale
    if one ends ten times as late as another, which would be a sliver else."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    ends = []
    for color, group in zip(cycle(COLORS), groups):
        if runs := with_values(group.runs, y):
            xs, ys, *band = curve(runs, x, y)
            ends.append(xs[-1])
            marker = "o" if len(xs) == 1 else None
            axes.plot(xs, ys, color=color, marker=marker)
            if band:
                low, high = band
                axes.fill_between(xs, low, high, color=color, alpha=0.25, linewidth=0)
    is_log = x == "seconds" and bool(ends) and 0 < 10 * min(ends) < max(ends)
    axes.set_xscale("log" if is_log else "linear")
    axes.margins(x=0.02)
    axes.grid(alpha=0.3)
    axes.xaxis.set_major_locator(LogLocator() if is_log else MaxNLocator(5))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(_short)


def _short(value: float, position: float) -> str:
    """Return the label of a tick, such as 1.5M."""
    from matplotlib.ticker import EngFormatter

    is_long = 1e3 <= abs(value) < 1e15
    return EngFormatter(sep="").format_eng(value) if is_long else f"{value:.6g}"


def _as_svg(figure: "Figure", css_class: str, unique: str) -> str:
    """Return a figure as an SVG element. unique: a text unlike those of the page's other figures,
    whose ids then are others, too."""
    import matplotlib

    file = io.StringIO()
    about = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # none of them
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": unique}):
        figure.savefig(file, format="svg", transparent=True, metadata=about)
    _, _, svg = file.getvalue().partition("</defs>")
    for pattern, replacement in (
        (r' id="[\w.]+_\d+"', ""),  # the names of groups, which all figures share
        (r"font(-\w+)?: [^;\"]*;? ?", ""),
        (r"(?<= )\d+\.\d{3,}", lambda number: f"{float(number[0]):.1f}"),
        (INK, "currentColor"),
        (r"\n *", "\n"),
    ):
        svg = re.sub(pattern, replacement, svg)
    width, height = 72 * figure.get_size_inches()
    return f'<svg class="{css_class}" viewBox="0 0 {width:.0f} {height:.0f}">{svg}'


def _thin(xs: ndarray, ys: ndarray) -> list[ndarray]:
    """Return x and y (n,), or of more than POINTS values their parts, as curve says."""
    if len(ys) <= POINTS:
        return [xs, ys]
    parts = np.array_split(ys, POINTS)
    ends = np.array([part[-1] for part in np.array_split(xs, POINTS)])
    return [ends, *(np.array([f(part) for part in parts]) for f in (np.mean, np.min, np.max))]


def _is_drawn(values: ndarray) -> ndarray:
    """Return whether each value is a number, and not too large to be drawn (n,)."""
    return np.abs(values) <= MAX_DRAWN


class Plot(Flags):
    """Plot the learning curves of runs, those of several seeds with a 95 % interval."""

    runs: list[str] = flag((), RUNS, nargs="+")
    metric: str | None = flag(
        None,
        "Metric to plot by itself, a column of metrics.csv such as entropy or env/success_rate; "
        "none: returns, and small plots of what says how training goes.",
    )
    output: str = flag("curves.png", "New .png, .svg or .pdf file.")

    def __call__(self) -> None:
        """Draw the picture. Raises ConfigError for a folder that is not a run, a metric that no run
        has or a file that is unsuitable, OSError if writing fails."""
        path = new_file("--output=", self.output, (".png", ".svg", ".pdf"))
        groups = read_groups(self.runs)
        if self.metric:
            draw_metric(groups, self.metric, path)
        else:
            draw(groups, path, is_new=True)
        print(f"picture: {self.output}")
