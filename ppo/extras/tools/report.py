"""Write a report of runs as one self-contained HTML page."""

import base64
import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from html import escape
from itertools import cycle
from os import fsencode
from os.path import relpath
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

from ppo.config.config import Config
from ppo.config.flags import Flags, Settings, as_arguments, flag
from ppo.errors import ConfigError
from ppo.extras.tools.plots import (
    COLORS,
    PANELS,
    RETURNS,
    UNITS,
    SvgCharts,
    draw,
    group_by_settings,
    name_of,
    target_of,
)
from ppo.extras.tools.summary_table import NOTHING, describe_evaluation, overview
from ppo.run.folder import EVENTS
from ppo.run.reader import RunRecord, read_run, run_folder
from ppo.run.result import evaluations_of
from ppo.system.files import atomic_write, check_folder, new_file, read_bytes, read_json_lines
from ppo.system.output import shorten

PAGE = Path(__file__).parent / "page"
MAX_EVALUATIONS = 1000  # in the page: the last ones
MAX_NOTES = 200  # in the page; events.jsonl has all of them
MAX_VIDEO_BYTES = 500_000  # in the page; a larger one is linked


def report_run(folder: Path) -> None:
    """Write a run's report.html and curve.png.

    Raises OSError, and ConfigError if the folder is not that of a run or matplotlib is not
    installed.
    """
    run = read_run(folder)
    write_report([run], folder / "report.html")
    draw([run], folder / "curve.png")


def write_report(runs: Sequence[RunRecord], path: Path) -> None:
    """Write a page about one run, or one that compares several. Raises OSError."""
    sections = _compare(runs) if len(runs) > 1 else _describe(runs[0], path.absolute().parent)
    title = ", ".join(run.name for run in runs)
    write_page(title, sections, path)


def write_page(title: str, sections: Iterable[str], path: Path) -> None:
    """Write a page of sections, which are HTML. Raises OSError.

    title: text, which is escaped here.
    """
    page = Template((PAGE / "page.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        style=(PAGE / "page.css").read_text(encoding="utf-8"),
        content="\n".join(sections),
    )
    with atomic_write(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def as_figure(title: str, size: str, picture: str) -> str:
    """Return HTML for a picture, which is HTML, with a title. size: "small" or "large"."""
    return f'<figure class="{size}"><figcaption>{escape(title)}</figcaption>{picture}</figure>'


def command(config: dict[str, Any]) -> str:
    """Return the shortest command line that repeats a run. config: the content of its
    config.json."""
    return shlex.join(["python", "main.py", *as_arguments(fewest_flags(config))])


def fewest_flags(run: Settings) -> Settings:
    """Return the fewest flags by which a new command line leads to the settings of a run.

    run: the content of its config.json. A flag is left out where the run has the value of its
    preset, or else the default one; "auto" is what it stood for in the run, if that is known."""
    auto = run.get("auto") or {}  # earlier versions did not record it
    names = [x for x in Config.names(scope="training") if x in run and x != "preset"]
    choices = []
    has_presets = "preset" in Config.names()
    presets = ["auto", run.get("preset", "none"), "none"] if has_presets else ["none"]
    for preset in dict.fromkeys(presets):
        tuned: Settings = {}
        if preset != "none":
            from ppo.extras.presets.presets import load_preset

            try:
                tuned = load_preset(preset, run["env_name"], lambda: auto["preset"])
            except (ConfigError, KeyError):  # the file is gone, or the family was not recorded
                continue
        plain = Config(**tuned).__getstate__()
        plain = {name: auto.get(name, x) if x == "auto" else x for name, x in plain.items()}
        if run.get("num_minibatches") != plain["num_minibatches"]:
            plain["batch_size"] = None  # as settings_of has it
        flags = {"env_name": run["env_name"]}
        if has_presets and preset != "auto":
            flags["preset"] = preset
        choices.append(flags | {name: run[name] for name in names if run[name] != plain[name]})
    return min(choices, key=len)


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
        if len(notes) == MAX_NOTES:
            break
    if notes:
        items = "".join(f"<li>{escape(note)}</li>" for note in notes)
        yield f'<h2>What the trainer noticed</h2><ul class="notes">{items}</ul>'
    yield from _curves([run])
    if evaluations := evaluations_of(run.folder):
        yield "<h2>Evaluation</h2>"
        rows = (describe_evaluation(made, run.config) for made in evaluations[-MAX_EVALUATIONS:])
        yield _table(["made", "step", "episodes", "return"], rows)
    if path := last_video(run.folder):
        source = quote(fsencode(relpath(path.absolute(), place)))
        with suppress(OSError):  # it is larger
            content = read_bytes(path, MAX_VIDEO_BYTES)
            source = f"data:video/mp4;base64,{base64.b64encode(content).decode()}"
        yield f"<h2>After step {int(path.stem):,}</h2>"
        yield f'<video controls loop src="{escape(source)}"></video>'
    yield f"<h2>Reproduction</h2><pre>{escape(command(run.config))}</pre>"
    settings = _table(["setting", "value"], run.config.items())
    yield f"<details><summary>All settings and versions</summary>{settings}</details>"


def last_video(folder: Path) -> Path | None:
    """Return the run's last video of --video_every, if there is one; their names are steps."""
    videos = [path for path in folder.glob("videos/*.mp4") if path.stem.isdecimal()]
    return max(videos, key=lambda path: int(path.stem), default=None)


def _compare(runs: Sequence[RunRecord]) -> Iterator[str]:
    """Yield the sections about several runs."""
    facts = [{"run": run.name, **overview(run)} for run in runs]
    yield _table(facts[0], (row.values() for row in facts))
    yield from _curves(runs)
    ignored = {"auto", "run_id", *Config.names(scope="run")}
    settings = dict.fromkeys(name for run in runs for name in run.config if name not in ignored)
    values = {name: [run.config.get(name) for run in runs] for name in settings}
    differences = ((name, *x) for name, x in values.items() if any(one != x[0] for one in x))
    yield "<h2>Settings that differ</h2>"
    yield _table(["setting", *(run.name for run in runs)], differences)


def _curves(runs: Sequence[RunRecord]) -> Iterator[str]:
    """Yield a section with the curves of the returns, of PANELS and of the environment's own
    metrics, over each of UNITS; or with what is missing to draw them."""
    own = dict.fromkeys(name for run in runs for name in run.metrics if name.startswith("env/"))
    titles = {**RETURNS, **PANELS, **{name: name for name in own}}
    charts = []
    yield "<h2>Learning</h2>"
    try:
        sizes = {"large": SvgCharts(9, 4.3), "small": SvgCharts(4.6, 2)}
        for name, title in titles.items():
            size = "large" if name in RETURNS else "small"
            if drawn := "".join(sizes[size].draw(runs, unit, name) for unit in UNITS):
                charts.append(as_figure(title, size, drawn))
    except ConfigError as missing:
        yield f"<p>The curves are not drawn: {escape(str(missing))}</p>"
        return
    for unit, label in UNITS.items():
        checked = " checked" if unit == "step" else ""
        yield f'<input type="radio" name="unit" id="{unit}"{checked}>'
        yield f'<label for="{unit}">{label}</label>'
    keys = [
        f'<li style="color: {color}"><span>{escape(name_of(group))}</span></li>'
        for group, color in zip(group_by_settings(runs), cycle(COLORS))
    ]
    if (target := target_of(runs)) is not None:
        keys.append(f'<li class="target">solved: {_text(target)}</li>')
    yield f'<ul class="keys">{"".join(keys)}</ul>'
    yield f'<div class="charts">{"".join(charts)}</div>'


def _table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    text = "".join(f"<th>{escape(name)}</th>" for name in head)
    for row in rows:
        cells = "".join(f"<td>{escape(_text(cell))}</td>" for cell in row)
        text += f"<tr>{cells}</tr>"
    return f'<div class="scroll"><table>{text}</table></div>'


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:,.6g}"
    if type(value) is int:  # a bool is written as JSON
        return f"{value:,}"
    return NOTHING if value is None else json.dumps(value)


class Report(Flags):
    """Report all of a run, or compare several, on an HTML page that needs nothing but a browser."""

    runs: list[str] = flag((), "Folders of runs, or their names in runs/.", nargs="+")
    output: str | None = flag(
        None,
        "New .html file; none: report.html in the run's folder, comparison.html for several runs.",
    )

    def __call__(self) -> None:
        """Write the page. Raises ConfigError for a folder that is not a run or a file that is
        unsuitable, OSError if writing fails."""
        runs = [read_run(run_folder(name)) for name in self.runs]
        output = self.output or ("comparison.html" if len(runs) > 1 else None)
        if output:
            path = new_file("--output=", output, (".html",))
        else:
            path = check_folder("--output=", runs[0].folder / "report.html")
        write_report(runs, path)
        print(f"page: {path}")
