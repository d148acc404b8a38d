"""Write a report of runs as one self-contained HTML page."""

import base64
import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from html import escape
from os import fsencode
from os.path import relpath
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

import gymnasium
import numpy as np
from numpy import ndarray

from ppo.callbacks.highlights import find_episode, video_path
from ppo.commands.shared import check_folder, new_file
from ppo.config.config import Config, run_folder
from ppo.config.flags import Flags, as_arguments, flag
from ppo.errors import ConfigError
from ppo.policy.policy import Policy
from ppo.run.folder import EVENTS
from ppo.run.reader import RETURN, RunRecord, read_run
from ppo.system.files import atomic_write, read_bytes, read_json_lines
from ppo.system.output import shorten
from ppo.tools.overview import NOTHING, describe_evaluation, evaluations_of, overview
from ppo.tools.plots import PANELS, curve, draw, group_by_settings, name_of, with_values
from ppo.tools.render import replay

PAGE = Path(__file__).parent / "page"
POINTS = 200  # of a curve; more points are averaged
Chart = dict[str, Any]  # or a part of one, as page.js takes them
MOST_NOTES = 200  # messages in the page; events.jsonl has all of them
LARGEST_VIDEO = 500_000  # bytes of a video in the page; a larger one is linked
CURVES = """<h2>Learning</h2>
<p>Over <button data-unit="steps">environment steps</button>
<button data-unit="seconds">seconds</button> (drag to zoom, double click to return)</p>
<div id="large"></div><div id="small" class="small"></div>"""


def report_run(folder: Path, policy: Policy) -> None:
    """Write a run's report.html and curve.png, with a video of its best episode if one can be made.

    policy: replays the episode. Raises OSError, and ConfigError if the folder is not that of a run
    or matplotlib is not installed.
    """
    with suppress(Exception):  # rendering an environment may raise anything
        episode = find_episode(folder, "best")
        path = video_path(folder, episode)
        if not path.exists():
            policy.isolated("the video", replay, policy, episode, path)
    run = read_run(folder)
    write_report([run], folder / "report.html")
    draw([run], folder / "curve.png")


def write_report(runs: Sequence[RunRecord], path: Path) -> None:
    """Write a page about one run, or one that compares several. Raises OSError."""
    sections = _compare(runs) if len(runs) > 1 else _describe(runs[0], path.absolute().parent)
    title = ", ".join(run.name for run in runs)
    write_page(title, sections, path, [*_charts(runs)])


def write_page(
    title: str, sections: Iterable[str], path: Path, charts: Sequence[Chart] = ()
) -> None:
    """Write a page of sections, which are HTML, and charts, as page.js takes them. Raises OSError.

    title: text, which is escaped here.
    """
    text = {file.name: file.read_text(encoding="utf-8") for file in PAGE.iterdir()}
    page = Template(text["page.html"]).substitute(
        title=escape(title),
        style=text["uplot.css"] + text["page.css"],
        content="\n".join(sections),
        charts=json.dumps(charts).replace("<", "\\u003c"),
        script=text["uplot.js"] + text["page.js"] if charts else "",
    )
    with atomic_write(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def command(config: dict[str, Any]) -> str:
    """Return the command line that repeats a run. config: the content of its config.json."""
    settings = {
        name: config[name]
        for name in Config.names(scope="training")
        if name in config and name != "preset"
    }
    return shlex.join(["python", "main.py", "--preset=none", *as_arguments(settings)])


def _describe(run: RunRecord, place: Path) -> Iterator[str]:
    """Yield the sections about one run. place: the page's folder, for relative links."""
    cards = (
        f"<div><dt>{escape(x)}</dt><dd>{escape(y)}</dd></div>" for x, y in overview(run).items()
    )
    yield f'<dl class="cards">{"".join(cards)}</dl>'
    messages = (event.get("message") for event in read_json_lines(run.folder / EVENTS))
    notes: dict[str, None] = {}
    for message in messages:
        if isinstance(message, str) and message:
            notes[shorten(message)] = None
        if len(notes) == MOST_NOTES:
            break
    if notes:
        items = "".join(f"<li>{escape(note)}</li>" for note in notes)
        yield f'<h2>What the trainer noticed</h2><ul class="notes">{items}</ul>'
    yield CURVES
    if evaluations := evaluations_of(run):
        yield "<h2>Evaluation</h2>"
        yield _table(["made", "episodes", "return"], map(describe_evaluation, evaluations))
    with suppress(ConfigError):
        path = video_path(run.folder, find_episode(run.folder, "best"))
        if path.is_file():
            source = quote(fsencode(relpath(path.absolute(), place)))
            with suppress(OSError):  # it is larger
                content = read_bytes(path, LARGEST_VIDEO)
                source = f"data:video/mp4;base64,{base64.b64encode(content).decode()}"
            yield f'<h2>Best episode</h2><video controls loop src="{escape(source)}"></video>'
    yield '<h2>Reproduction</h2><p><button data-copy="command">copy</button></p>'
    yield f'<pre id="command">{escape(command(run.config))}</pre>'
    settings = _table(["setting", "value"], run.config.items())
    yield f"<details><summary>All settings and versions</summary>{settings}</details>"


def _compare(runs: Sequence[RunRecord]) -> Iterator[str]:
    """Yield the sections about several runs."""
    facts = [{"run": run.name, **overview(run)} for run in runs]
    yield _table(facts[0], (row.values() for row in facts))
    yield CURVES
    ignored = {"run_id", *Config.names(scope="run")}
    settings = dict.fromkeys(name for run in runs for name in run.config if name not in ignored)
    values = {name: [run.config.get(name) for run in runs] for name in settings}
    differences = ((name, *x) for name, x in values.items() if any(one != x[0] for one in x))
    yield "<h2>Settings that differ</h2>"
    yield _table(["setting", *(run.name for run in runs)], differences)


def _charts(runs: Sequence[RunRecord]) -> Iterator[Chart]:
    """Yield charts of the returns, of PANELS and of the environment's own metrics, as page.js
    takes them."""
    titles = {
        RETURN: "mean return of 100 episodes",
        "evaluation_return_mean": "mean return of evaluations",
        **PANELS,
        **{name: name for run in runs for name in run.metrics if name.startswith("env/")},
    }
    groups = group_by_settings(runs)
    for name, title in titles.items():
        series = []
        for number, group in enumerate(groups):
            if known := with_values(group, name):
                series.append({"number": number, **_series(known, name)})
        if series:
            target = _target({run.config["env_name"] for run in runs}) if name == RETURN else None
            yield {"title": title, "series": series, "target": target}


def _series(group: Sequence[RunRecord], name: str) -> Chart:
    """Return the curve of a run, or the interquartile mean and 95 % interval of several, over steps
    and over seconds: columns x and y, or x, mean, low and high."""
    series: Chart = {"label": name_of(group)}
    for unit, x in {"steps": "step", "seconds": "seconds"}.items():
        columns = curve(group, x, name)
        if len(group) == 1:
            columns = _thin(*columns)
        if name == "explained_variance":  # far below 0 it means nothing
            columns[1:] = np.clip(columns[1:], -1, 1)
        series[unit] = [[float(f"{value:.6g}") for value in column] for column in columns]
    return series


def _thin(xs: ndarray, ys: ndarray) -> list[Any]:
    """Return x and y (n,) where y is finite. Of more than POINTS values, return POINTS parts: their
    last x, and the mean, minimum and maximum of their y."""
    known = np.isfinite(ys)
    if known.sum() <= POINTS:
        return [xs[known], ys[known]]
    parts = np.array_split(ys[known], POINTS)
    ends = [part[-1] for part in np.array_split(xs[known], POINTS)]
    reduced = [[f(part) for part in parts] for f in (np.mean, np.min, np.max)]
    return [ends, *reduced]


def _target(env_names: set[str]) -> float | None:
    """Return the return at which gymnasium counts the environment as solved; None if it does not
    say, or if there are several environments."""
    (env_name, *others) = env_names
    if others or ":" in env_name:  # gymnasium would import a module
        return None
    with suppress(gymnasium.error.Error):
        return gymnasium.spec(env_name).reward_threshold
    return None


def _table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    text = "".join(f"<th>{escape(name)}</th>" for name in head)
    for row in rows:
        cells = "".join(f"<td>{escape(_text(cell))}</td>" for cell in row)
        text += f"<tr>{cells}</tr>"
    return f'<div class="scroll"><table>{text}</table></div>'


def _text(value) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:,.6g}"
    if type(value) is int:  # a bool is written as JSON
        return f"{value:,}"
    return NOTHING if value is None else json.dumps(value)


class Report(Flags):
    """Report all of a run, or compare several, on an HTML page that needs nothing but a browser."""

    runs: list[str] = flag((), "The folders of runs, or their names in runs/.", nargs="+")
    output: str | None = flag(
        None,
        "New .html file; none replaces report.html in the run's folder, or is comparison.html for "
        "several.",
    )

    def __call__(self) -> None:
        """Write the page. Raises ConfigError for a folder that is no run or a file that is
        unsuitable, OSError if writing fails."""
        runs = [read_run(run_folder(name)) for name in self.runs]
        output = self.output or ("comparison.html" if len(runs) > 1 else None)
        if output:
            path = new_file("--output=", output, (".html",))
        else:
            path = check_folder("--output=", runs[0].folder / "report.html")
        write_report(runs, path)
        print(f"page: {path}")
