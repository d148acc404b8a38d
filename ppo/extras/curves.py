"""What runs, plot and report share: reading the folders of runs, and drawing curves as SVG."""

import csv
import fcntl
import json
import math
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from ppo import checkpoint
from ppo.errors import ConfigError, reason

TITLES = {  # of the metrics to look at first
    "episode_return_mean": "mean return in training",
    "evaluation_return_mean": "mean return of evaluations",
    "env/success_rate": "success rate in training",
}
UNKNOWN = {"env_name": "?", "num_envs": 1, "num_steps": 1, "total_steps": 0}
OF_ONE_RUN = (  # settings in which the runs of a group differ
    "seed",
    "name",
    "run_dir",
    "resume",
    "num_workers",
    "logger",
)
Settings = dict[str, Any]
SIZES = {"G": 1e9, "M": 1e6, "k": 1e3}
MAX_DRAWN = 1e100  # absolute value
POINTS = 200  # of a curve
COLORS = 8  # in STYLE
LEFT, RIGHT = 48, 16  # margins of a chart
TOP, BOTTOM = 8, 24
STYLE = """
text { fill: currentColor; font-family: system-ui, sans-serif; font-size: 11px }
.grid { stroke: currentColor; opacity: .15 } .band { fill: currentColor; opacity: .25 }
.curve { fill: none; stroke: currentColor; stroke-width: 1.6; stroke-linejoin: round }
.grid, .curve { vector-effect: non-scaling-stroke; stroke-linecap: round }
.c0 { color: #3b78c3 } .c1 { color: #d9722e } .c2 { color: #3b9a57 } .c3 { color: #a456b3 }
.c4 { color: #c43d4b } .c5 { color: #8a6d3b } .c6 { color: #2a9aa0 } .c7 { color: #7a7f8a }
"""


class Record:
    """What the files of a run say. What cannot be read is left out with a warning.

    metrics: columns of metrics.csv (iterations,), NaN where there is no value; evaluations: those
    with episodes; summary: {} until the run is complete."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = _read(folder / "config.json", _settings, UNKNOWN)
        self.metrics = _read(folder / "metrics.csv", _metrics, _metrics(""))
        self.evaluations = _read(folder / "evaluations.jsonl", _evaluations, [])
        self.summary = _read(folder / "summary.json", _summary, {})
        self.notes = _read(folder / "notes.txt", _lines, [])
        size = self.config["num_envs"] * self.config["num_steps"]
        self.total_steps = self.config["total_steps"] // size * size
        self.step = int(self.last("step") or 0)
        is_complete = self.summary.get("steps") == self.step
        self.state = "complete" if is_complete else "stopped"
        if _is_locked(folder / "lock"):
            self.state = "training"

    def column(self, name: str) -> ndarray:
        """Return a metric (iterations,)."""
        nothing = np.nan * self.metrics["step"]
        return self.metrics.get(name, nothing)

    def last(self, name: str) -> float | None:
        """Return the last value of a metric."""
        values = self.column(name)
        known = values[np.isfinite(values)]
        return float(known[-1]) if known.size else None

    def evaluation(self) -> float | None:
        """Return the mean return of the state that load_policy loads: the best or the last one."""
        means = self.column("evaluation_return_mean")
        if np.isfinite(means).any():
            return float(np.nanmax(means))
        if self.evaluations:
            return self.evaluations[-1]["mean"]
        return None


def read_runs(names: list[str]) -> list[Record]:
    """Read runs by their folders or names in runs/; the folder of several stands for all of them.
    Raises ConfigError."""
    found = []
    for name in names:
        folder = Path(name)
        if not folder.is_dir():
            folder = Path("runs", name)
        is_run = (folder / "config.json").exists()
        runs = [folder] if is_run else folders_in(folder)
        if not runs:
            raise ConfigError(f"{name} is not a run, as it has no config.json: give another")
        found += runs
    if not found:
        raise ConfigError("give the folder of a run, or its name in runs/")
    folders = dict.fromkeys(found)
    return [*map(Record, folders)]


def folders_in(folder: Path) -> list[Path]:
    """Return the folders of runs in a folder, at any depth, the newest last."""
    found = []
    for path in folder.rglob("metrics.csv"):
        if path.with_name("config.json").exists():
            modified = path.stat().st_mtime
            found.append((modified, path.parent))
    return [parent for _, parent in sorted(found)]


def _read(path: Path, parse: Callable[[str], Any], default: Any) -> Any:
    """Return what parse makes of a file, or the default; with a warning if it is damaged."""
    try:
        text = path.read_text(errors="replace")
        return parse(text)
    except FileNotFoundError:
        pass
    except Exception as error:  # it is damaged, or may not be read
        print(f"warning: {path} is skipped ({reason(error)})", file=sys.stderr)
    return default


def _summary(text: str) -> Settings:
    return {**json.loads(text)}


def _settings(text: str) -> Settings:
    config = _summary(text)
    if missing := UNKNOWN.keys() - config:
        raise ValueError(f"it has no {min(missing)}")
    return config


def _lines(text: str) -> list[str]:
    """Split a text, but for an unfinished last line."""
    end = text.rfind("\n") + 1
    return text[:end].splitlines()


def _metrics(text: str) -> dict[str, ndarray]:
    lines = _lines(text)
    rows = [*csv.DictReader(lines)]
    first = rows[0] if rows else {}
    columns = {}
    for name in {"step": "", **first}:
        texts = [row[name] or "nan" for row in rows]
        values = np.array(texts, float)
        values[abs(values) > MAX_DRAWN] = np.nan
        columns[name] = values
    return columns


def _evaluations(text: str) -> list[Settings]:
    lines = dict.fromkeys(_lines(text))  # a resumed run repeats some
    found = map(json.loads, lines)
    return [x for x in found if x["returns"]]


def _is_locked(path: Path) -> bool:
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def write(path: Path, text: str) -> None:
    """Write the file of --output, whole or not at all. Raises ConfigError."""
    try:
        content = text.encode(errors="replace")
        checkpoint.write(path, content)
    except OSError as error:
        raise ConfigError(f"--output={path} cannot be written ({error.strerror})") from error


def refuse(flags: Iterable[str]) -> None:
    """Raise ConfigError if there are flags of training."""
    for name in flags:
        raise ConfigError(f"--{name} is a flag of training: leave it out")


def grouped(runs: Iterable[Record]) -> dict[str, list[Record]]:
    """Return groups of runs that differ only in their seed, by their labels."""
    groups: dict[str, list[Record]] = {}
    for run in runs:
        settings = run.config | dict.fromkeys(OF_ONE_RUN)
        key = json.dumps(settings, sort_keys=True)
        groups.setdefault(key, []).append(run)
    return {_label(group): group for group in groups.values()}


def _label(runs: list[Record]) -> str:
    label = str(runs[0].folder)
    if len(runs) > 1:
        label = f"mean of {label} and {len(runs) - 1} more"
    return label


def curve(runs: Iterable[Record], name: str) -> ndarray:
    """Return the curve of a metric over steps, for which there are at most POINTS: (4, points) with
    steps, means, and the lowest and highest values, of all iterations and runs there."""
    pairs = []
    for run in runs:
        pair = run.column("step"), run.column(name)
        pairs.append(pair)
    table = np.hstack(pairs)
    is_known = np.isfinite(table).all(axis=0)
    steps, values = table[:, is_known]
    points = []
    different = np.unique(steps)
    for part in np.array_split(different, POINTS):
        if part.size:
            first, last = part[0], part[-1]
            is_here = (first <= steps) & (steps <= last)
            here = values[is_here]
            least, largest = here.min(), here.max()
            points.append((last, here.mean(), least, largest))
    return np.reshape(points, (-1, 4)).T


def draw(
    groups: Iterable[list[Record]],
    name: str,
    width: int,
    height: int,
) -> str:
    """Return a chart of a metric as elements of an SVG, with a curve for each group; "" without
    values. STYLE is its style sheet; text has the color of what is around it."""
    curves = [curve(runs, name) for runs in groups]
    table = np.hstack(curves)
    if not table.size:
        return ""
    steps, values = table[0], table[1:]
    if name == "explained_variance":
        values = np.maximum(values, -1)  # below, it means nothing
    limits = _limits(steps)
    heights = _limits(values)
    right = width - RIGHT
    bottom = height - BOTTOM

    def across(value: Any) -> Any:
        return np.interp(value, limits, (LEFT, right))

    def up(value: Any) -> Any:
        return np.interp(value, heights, (bottom, TOP))

    parts = []
    for tick in _ticks(*heights):
        y = f"{up(tick):.1f}"
        parts.append(f'<path class="grid" d="M{LEFT} {y}H{right}"/>')
        place = f'x="{LEFT - 6}" y="{y}" dy=".35em" text-anchor="end"'
        parts.append(f"<text {place}>{_short(tick)}</text>")
    for tick in _ticks(*limits):
        place = f'x="{across(tick):.1f}" y="{height - 6}" text-anchor="middle"'
        parts.append(f"<text {place}>{_short(tick)}</text>")
    for index, (steps, means, low, high) in enumerate(curves):
        if steps.size:
            xs = across(steps)
            line = _points(xs, up(means))
            upper = _points(xs, up(high))
            lower = _points(xs, up(low))
            edges = upper + lower[::-1]
            color = f"c{index % COLORS}"
            parts.append(f'<path class="band {color}" d="M{"L".join(edges)}Z"/>')
            # Twice from the first point, so that a single one is a dot.
            parts.append(f'<path class="curve {color}" d="M{line[0]}L{"L".join(line)}"/>')
    return "\n".join(parts)


def _points(xs: ndarray, ys: ndarray) -> list[str]:
    points = zip(xs, ys, strict=True)
    return [f"{x:.1f} {y:.1f}" for x, y in points]


def _limits(values: ndarray) -> tuple[float, float]:
    low = float(values.min())
    high = float(values.max())
    margin = 0.03 * (high - low)
    if margin < 1e-9 * abs(high):  # all are the same
        margin = 0.1 * abs(high)
    if margin < 1 / MAX_DRAWN:
        margin = 1.0
    return low - margin, high + margin


def _ticks(low: float, high: float) -> ndarray:
    """Return two to six round numbers between two limits."""
    least = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(least))
    multiples = np.array([1, 2, 5, 10, 20])
    steps = power * multiples
    step = steps[steps >= least][0]
    first = math.ceil(low / step)
    return step * np.arange(first, high / step)


def _short(number: float) -> str:
    """Return a number in few characters, such as 1.5M."""
    for letter, size in SIZES.items():
        if size <= abs(number) < 1e15:
            return f"{number / size:.4g}{letter}"
    return f"{number:.4g}"
