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

RETURN = "episode_return_mean"
SUCCESS = "env/success_rate"
EVALUATION = "evaluation_return_mean"
TITLES = {  # of the metrics to look at first
    RETURN: "mean return in training",
    SUCCESS: "success rate in training",
    EVALUATION: "mean return of evaluations",
}
UNKNOWN = {"env_name": "?", "num_envs": 1, "num_steps": 1, "total_steps": 0, "seed": 0}
OF_ONE_RUN = (  # settings in which the runs of a group differ
    "seed",
    "name",
    "run_dir",
    "resume",
    "num_workers",
    "logger",
)
Settings = dict[str, Any]
UNITS = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
MAX_DRAWN = 1e100  # absolute value
POINTS = 200  # of a curve
DOTS = 12  # a curve of so few evaluations has a dot for each
COLORS = 8  # in STYLE
TOP, RIGHT, BOTTOM = 8, 16, 24  # margins of a chart
STYLE = """
text { fill: currentColor; font-family: system-ui, sans-serif; font-size: 11px }
.grid, .band { stroke: currentColor; opacity: .2 } .band { fill: currentColor }
.curve { fill: none; stroke: currentColor; stroke-width: 1.6; stroke-linejoin: round }
.dot { stroke: currentColor; stroke-width: 5 } .curve.dashed { stroke-dasharray: 5 4 }
.grid, .band, .curve, .dot { vector-effect: non-scaling-stroke; stroke-linecap: round }
.c0 { color: #3b78c3 } .c1 { color: #d9722e } .c2 { color: #3b9a57 } .c3 { color: #a456b3 }
.c4 { color: #c43d4b } .c5 { color: #8a6d3b } .c6 { color: #2a9aa0 } .c7 { color: #7a7f8a }
"""


class Record:
    """What the files of a run say. What cannot be read is left out with a warning.

    series: steps and values of metrics (2, values); summary: {} until the run is complete."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = _read(folder / "config.json", _settings, UNKNOWN)
        self.series = _read(folder / "metrics.csv", _metrics, {})
        self.evaluations = _read(folder / "evaluations.jsonl", _evaluations, [])
        self.summary = _read(folder / "summary.json", _summary, {})
        self.notes = _read(folder / "notes.txt", _lines, [])
        if self.evaluations:  # also the final one, which metrics.csv lacks
            means = {x["step"]: x["mean"] for x in self.evaluations}
            self.series |= _known(EVALUATION, [*means], [*means.values()])
        size = self.config["num_envs"] * self.config["num_steps"]
        self.total_steps = self.config["total_steps"] // size * size
        self.step = int(self.last("step") or 0)
        is_complete = self.summary.get("steps") == self.step
        self.state = "complete" if is_complete else "stopped"
        if _is_locked(folder / "lock"):
            self.state = "training"

    def last(self, name: str) -> float | None:
        """Return the last value of a metric."""
        if name not in self.series:
            return None
        return float(self.series[name][1, -1])

    def best(self) -> float | None:
        """Return the mean return of the best evaluation."""
        if EVALUATION not in self.series:
            return None
        return float(self.series[EVALUATION][1].max())


def read_runs(names: list[str]) -> list[Record]:
    """Read runs by their folders or names in runs/; the folder of several stands for all of them.
    Raises ConfigError."""
    found = []
    for name in names:
        runs = runs_of(name)
        if not runs:
            raise ConfigError(f"{name} is not a run, as it has no config.json: give another")
        found += runs
    if not found:
        raise ConfigError("give the folder of a run, or its name in runs/")
    folders = dict.fromkeys(found)
    return [*map(Record, folders)]


def runs_of(name: str) -> list[Path]:
    """Return the folder of a run, by its path or its name in runs/, or those of all runs in it."""
    folder = Path(name)
    if not folder.is_dir():
        folder = Path("runs", name)
    is_run = (folder / "config.json").exists()
    return [folder] if is_run else folders_in(folder)


def folders_in(folder: Path) -> list[Path]:
    """Return the folders of runs in a folder, at any depth, the newest last."""
    found = []
    for path in folder.rglob("config.json"):
        if path.with_name("checkpoints").is_dir():
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
    series: dict[str, ndarray] = {}
    steps = [float(row["step"] or "nan") for row in rows]
    for name in rows[0] if rows else []:
        values = [row[name] or "nan" for row in rows]
        series |= _known(name, steps, values)
    return series


def _known(name: str, steps: Any, values: Any) -> dict[str, ndarray]:
    """Return the steps and values that can be drawn, by the name; {} if there are none."""
    pairs = np.array([steps, values], float)
    is_known = (abs(pairs) <= MAX_DRAWN).all(axis=0)
    if not is_known.any():
        return {}
    return {name: pairs[:, is_known]}


def _evaluations(text: str) -> list[Settings]:
    lines = dict.fromkeys(_lines(text))  # a resumed run repeats some
    found = []
    for line in lines:
        start = line.rindex('{"step"')  # what is before it was left unfinished
        found.append(json.loads(line[start:]))
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
    """Return groups of runs in one folder that differ only in their seed, by their labels."""
    groups: dict[Any, list[Record]] = {}
    for run in runs:
        settings = run.config | dict.fromkeys(OF_ONE_RUN)
        key = run.folder.parent, json.dumps(settings, sort_keys=True)
        seeds = [x.config["seed"] for x in groups.get(key, [])]
        if run.config["seed"] in seeds:  # something else differs, such as the code
            key = run.folder, ""
        groups.setdefault(key, []).append(run)
    return {_label(group): group for group in groups.values()}


def _label(runs: list[Record]) -> str:
    folder = runs[0].folder
    if len(runs) == 1:
        return str(folder)
    own = {run.folder for run in runs}
    siblings = folders_in(folder.parent)
    if folder.parent.name and own == {*siblings}:
        return f"{folder.parent} (mean of {len(runs)} runs)"
    return f"mean of {folder} and {len(runs) - 1} more"


def curve(runs: Iterable[Record], name: str) -> ndarray:
    """Return the curve of a metric over steps, for which there are at most POINTS: (4, points) with
    steps, means, and the lowest and highest values, of all iterations and runs there."""
    nothing = np.empty((2, 0))
    known = [run.series.get(name, nothing) for run in runs]
    steps, values = np.hstack(known)
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
    """Return a chart of a metric, a curve for each group, for an SVG with STYLE; "" if empty."""
    curves = [curve(runs, name) for runs in groups]
    table = np.hstack(curves)
    if not table.size:
        return ""
    values = table[1:]
    if name == "explained_variance":
        values = np.maximum(values, -1)  # below, it means nothing
    if name == SUCCESS:
        values = np.append(values, [0, 1])
    heights = _limits(values)
    end = max(run.step for runs in groups for run in runs)
    limits = 0.0, 1 + 1.03 * end
    rows = _ticks(*heights, max(5, height // 40))
    longest = max(map(len, rows.values()))
    left = max(48, 11 * longest)  # also for the large text of small screens
    right = width - RIGHT
    bottom = height - BOTTOM

    def across(value: Any) -> Any:
        return np.interp(value, limits, (left, right))

    def up(value: Any) -> Any:
        return np.interp(value, heights, (bottom, TOP))

    parts = []
    for tick, text in rows.items():
        y = f"{up(tick):.1f}"
        parts.append(f'<path class="grid" d="M{left} {y}H{right}"/>')
        place = f'x="{left - 6}" y="{y}" dy=".35em" text-anchor="end"'
        parts.append(f"<text {place}>{text}</text>")
    for tick, text in _ticks(*limits, 5).items():
        place = f'x="{across(tick):.1f}" y="{height - 6}" text-anchor="middle"'
        parts.append(f"<text {place}>{text}</text>")
    lines = []  # above all bands
    for index, (steps, *means_and_edges) in enumerate(curves):
        xs = across(steps)
        line, lower, upper = [_points(xs, up(x)) for x in means_and_edges]
        if line:
            edges = upper + lower[::-1]
            parts.append(path("band", index, edges))
            lines.append(path("curve", index, line))
        has_dots = name == EVALUATION and len(line) <= DOTS
        if has_dots or len(line) == 1:
            lines += [path("dot", index, [point, point]) for point in line]
    return "\n".join([*parts, *lines])


def path(kind: str, group: int, points: Iterable[str]) -> str:
    dashed = " dashed" if group >= COLORS else ""
    return f'<path class="{kind} c{group % COLORS}{dashed}" d="M{"L".join(points)}"/>'


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


def _ticks(low: float, high: float, most: int) -> dict[float, str]:
    """Return round numbers between two limits, at least two, and their texts, all in one unit."""
    least = (high - low) / most
    power = 10.0 ** math.floor(math.log10(least))
    multiples = np.array([1, 2, 5, 10, 20])
    steps = power * multiples
    step = steps[steps >= least][0]
    first = math.ceil(low / step)
    ticks = step * np.arange(first, high / step)
    largest = abs(ticks).max()
    letter, size = _unit(largest)
    digits = 2 + int(math.log10(largest / step))
    texts = {}
    for tick in ticks:
        text = f"{tick / size:.{max(3, digits)}g}{letter}"
        texts[float(tick)] = text if tick else "0"
    return texts


def short(number: float) -> str:
    """Return a number in few characters, such as 1.5M."""
    letter, size = _unit(1.0005 * number)  # 999,999 is 1M
    return f"{number / size:.3g}{letter}"


def _unit(number: float) -> tuple[str, float]:
    for letter, size in UNITS.items():
        if size <= abs(number) < 1000 * size:
            return letter, size
    return "", 1.0
