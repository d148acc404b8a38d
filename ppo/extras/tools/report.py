"""Write a report of runs as one self-contained HTML page."""

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from html import escape
from itertools import cycle
from keyword import iskeyword
from os import fsencode
from os.path import relpath
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

from ppo.config.config import Config
from ppo.config.flags import Flags, Settings, check_values, command_line, flag
from ppo.errors import ConfigError
from ppo.extras.tools.groups import (
    RUNS,
    Group,
    all_runs,
    differing,
    group_runs,
    names_of,
    read_groups,
)
from ppo.extras.tools.plots import COLORS, PANELS, RETURNS, UNITS, SvgCharts, draw, target_of
from ppo.extras.tools.result import evaluations_of, result_of
from ppo.extras.tools.resumes import read_latest, resumes_of
from ppo.extras.tools.summary_table import (
    NOTHING,
    describe_evaluation,
    distinct,
    overview,
    own_numbers,
    seeds_overview,
)
from ppo.run.folder import EVENTS
from ppo.run.reader import RunRecord, run_folder
from ppo.system.files import atomic_write, check_folder, new_file, read_bytes, read_json_lines
from ppo.system.output import shorten

PAGE = Path(__file__).parent / "page"
MAX_EVALUATIONS = 1000  # in the page: the last ones
MAX_COLUMNS = 10  # of evaluations, in the table of the environment's own numbers: the last ones
MAX_OWN = 200  # metrics of the environment that are drawn in the page
MAX_NOTES = 200  # in the page; events.jsonl has all of them
MAX_VIDEO_BYTES = 500_000  # in the page; a larger one is linked


def report_run(folder: Path) -> None:
    """Write a run's report.html and curve.png.

    Raises OSError, and ConfigError if the folder is not that of a run or matplotlib is not
    installed.
    """
    groups = group_runs([read_latest(folder)])
    write_report(groups, folder / "report.html")
    draw(groups, folder / "curve.png")


def write_report(groups: Sequence[Group], path: Path, is_new: bool = False) -> None:
    """Write a page about one run, or one that compares several. is_new: of atomic_write. Raises
    OSError."""
    runs = all_runs(groups)
    sections = _compare(groups) if len(runs) > 1 else _describe(runs[0], path.absolute().parent)
    write_page(", ".join(names_of(runs)), sections, path, is_new)


def write_page(title: str, sections: Iterable[str], path: Path, is_new: bool = False) -> None:
    """Write a page of sections, which are HTML. Raises OSError.

    title: text, which is escaped here; is_new: of atomic_write.
    """
    page = Template((PAGE / "page.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        style=(PAGE / "page.css").read_text(encoding="utf-8"),
        content="\n".join(sections),
    )
    with atomic_write(path, is_new) as temporary:
        temporary.write_text(page, encoding="utf-8")


def as_figure(title: str, size: str, picture: str) -> str:
    """Return HTML for a picture, which is HTML, with a title. size: "small" or "large"."""
    return f'<figure class="{size}"><figcaption>{escape(title)}</figcaption>{picture}</figure>'


def command(config: dict[str, Any]) -> str:
    """Return the shortest command line that repeats a run, or if there is none, as only Python can
    give what it was given, the call that does. config: its settings, as in config.json."""
    flags = fewest_flags(config)
    only = only_in_python(flags)
    if not only:
        return command_line(**flags)
    values = {name: _in_python(name, only) or repr(value) for name, value in flags.items()}
    env_name = values.pop("env_name")
    return f"train({', '.join([env_name, *(f'{name}={x}' for name, x in values.items())])})"


def only_in_python(flags: Settings) -> dict[str, str]:
    """Return those flags, with their saved texts, that a command line cannot give: classes and
    functions from Python."""
    found = {}
    for name, value in flags.items():
        try:
            check_values(Config, {name: value})
            is_given = not str(value).startswith("<")
        except ConfigError:
            is_given = False
        if not is_given:
            found[name] = str(value)
    return found


def _in_python(name: str, only: dict[str, str]) -> str:
    """Return how Python names what only Python can give a flag, "..." without a name of its own; ""
    for another flag."""
    label = only.get(name, "")
    own = label.strip("<>")
    has_name = label != own and own.isidentifier() and not iskeyword(own)
    return own if has_name else label and "..."


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
    cards = (f"<div><dt>{escape(x)}</dt>{_card(y)}</div>" for x, y in overview(run).items())
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
    yield from _curves(group_runs([run]))
    if evaluations := evaluations_of(run.folder):
        yield "<h2>Evaluation</h2>"
        rows = (describe_evaluation(made, run.config) for made in evaluations[-MAX_EVALUATIONS:])
        yield _table(["made", "step", "episodes", "return"], rows, is_whole=True)
        last = [made for made in evaluations if own_numbers(made)][-MAX_COLUMNS:]
        described = (describe_evaluation(made, run.config) for made in last)
        head = [f"{when}: step {step}" for when, step, _, _ in described]
        yield from _own_numbers(head, [own_numbers(made) for made in last])
    if path := last_video(run.folder):
        source = quote(fsencode(relpath(path.absolute(), place)))
        with suppress(OSError):  # it is larger
            content = read_bytes(path, MAX_VIDEO_BYTES)
            source = f"data:video/mp4;base64,{base64.b64encode(content).decode()}"
        yield f"<h2>After step {int(path.stem):,}</h2>"
        yield f'<video controls loop src="{escape(source)}"></video>'
    yield from _reproduction(run)
    settings = _table(["setting", "value"], _settings(run).items())
    yield f"<details><summary>All settings and versions</summary>{settings}</details>"


def _card(text: str) -> str:
    """Return a fact of overview for a card: the number, and smaller what follows it."""
    number, _, more = text.partition(" ")
    return f"<dd>{escape(number)}{more and f' <small>{escape(more)}</small>'}</dd>"


def _reproduction(run: RunRecord) -> Iterator[str]:
    """Yield a section with the command that repeats a run by the settings that it had last, and how
    they differ from those before each resume."""
    yield "<h2>Reproduction</h2>"
    if only := only_in_python(fewest_flags(run.config)):
        given = ", ".join(f"{name}={value.strip('<>')}" for name, value in only.items())
        yield f"<p>No command repeats this run: Python gave it {escape(given)}. This call does:</p>"
    yield f"<pre>{escape(command(run.config))}</pre>"
    if resumes := resumes_of(run.folder)[-MAX_NOTES:]:
        yield "<p>These are the settings that it had last. It was resumed</p><ul>"
        for event in resumes:
            changes = ", ".join(event["differences"]) or "with the same settings"
            note = f"after step {event['step']:,}: {changes}"
            yield f"<li>{escape(shorten(note))}</li>"
        yield "</ul>"


def _settings(run: RunRecord) -> Settings:
    """Return the settings of a run to show: environments without the mark of a class or function
    that they have in files."""
    names = ("env_name", "eval_env")
    plain = {x: str(run.config[x]).strip("<>") for x in names if run.config.get(x)}
    return {**run.config, **plain}


def last_video(folder: Path) -> Path | None:
    """Return the run's last video of --video_every, if there is one; their names are steps."""
    videos = [path for path in folder.glob("videos/*.mp4") if path.stem.isdecimal()]
    return max(videos, key=lambda path: int(path.stem), default=None)


def _compare(groups: Sequence[Group]) -> Iterator[str]:
    """Yield the sections about several runs."""
    runs = all_runs(groups)
    names = names_of(runs)
    if several := [group for group in groups if len(group.runs) > 1]:
        rows = ([group.label, *seeds_overview(group.runs)] for group in several)
        yield _table(["runs", "return in evaluation", "return in training"], rows)
    facts = [{"run": name, **overview(run)} for name, run in zip(names, runs, strict=True)]
    yield _table(facts[0], (row.values() for row in facts), is_whole=True)
    yield from _curves(groups)
    results = [own_numbers(result_of(run.folder, run.config)) for run in runs]
    yield from _own_numbers(names, results)
    ignored = {"auto", "run_id", *Config.names(scope="run")}
    settings = [
        {x: value for x, value in _settings(run).items() if x not in ignored} for run in runs
    ]
    yield "<h2>Settings that differ</h2>"
    values = ([name, *(one.get(name) for one in settings)] for name in differing(settings))
    yield _table(["setting", *names], values)


def _own_numbers(head: Sequence[str], numbers: Sequence[dict[str, float]]) -> Iterator[str]:
    """Yield a table of the environment's own metrics in the evaluations that are the results of
    runs, one in a column, if there are some."""
    if names := dict.fromkeys(name for one in numbers for name in one):
        yield "<h2>The environment's own numbers in evaluation</h2>"
        rows = ([name, *(one.get(name) for one in numbers)] for name in names)
        yield _table(["", *head], rows, is_whole=True)


def _curves(groups: Sequence[Group]) -> Iterator[str]:
    """Yield a section with the curves of the returns, of PANELS and of the environment's own
    metrics, over each of UNITS; or with what is missing to draw them."""
    runs = all_runs(groups)
    own = distinct(name for run in runs for name in run.metrics if name.startswith("env/"))
    titles = {**RETURNS, **PANELS, **{name: name for name in [*own][:MAX_OWN]}}
    charts = []
    yield "<h2>Learning</h2>"
    try:
        sizes = {"large": SvgCharts(9, 4.3), "small": SvgCharts(4.6, 2)}
        for name, title in titles.items():
            size = "large" if name in RETURNS else "small"
            if drawn := "".join(sizes[size].draw(groups, unit, name) for unit in UNITS):
                charts.append(as_figure(title, size, drawn))
    except ConfigError as missing:
        yield f"<p>The curves are not drawn: {escape(str(missing))}</p>"
        return
    for unit, label in UNITS.items():
        checked = " checked" if unit == "step" else ""
        yield f'<input type="radio" name="unit" id="{unit}"{checked}>'
        yield f'<label for="{unit}">{label}</label>'
    keys = [
        f'<li style="color: {color}"><span>{escape(group.label)}</span></li>'
        for group, color in zip(groups, cycle(COLORS))
    ]
    if (target := target_of(runs)) is not None:
        keys.append(f'<li class="target">solved: {_text(target)}</li>')
    yield f'<ul class="keys">{"".join(keys)}</ul>'
    yield f'<div class="charts">{"".join(charts)}</div>'


def _table(head: Iterable[str], rows: Iterable[Iterable[Any]], is_whole: bool = False) -> str:
    """Return a table as HTML. is_whole: whether no cell is broken into lines."""
    text = "".join(f"<th>{escape(name)}</th>" for name in head)
    for row in rows:
        cells = "".join(f"<td>{escape(_text(cell))}</td>" for cell in row)
        text += f"<tr>{cells}</tr>"
    css = ' class="whole"' if is_whole else ""
    return f'<div class="scroll"><table{css}>{text}</table></div>'


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

    runs: list[str] = flag((), RUNS, nargs="+")
    output: str | None = flag(
        None,
        "New .html file; none: report.html in the folder, comparison.html for several folders.",
    )

    def __call__(self) -> None:
        """Write the page. Raises ConfigError for a folder that is not a run or a file that is
        unsuitable, OSError if writing fails."""
        groups = read_groups(self.runs)
        output = self.output or ("comparison.html" if len(self.runs) > 1 else None)
        if output:
            path = new_file("--output=", output, (".html",))
        else:
            path = check_folder("--output=", run_folder(self.runs[0]) / "report.html")
        write_report(groups, path, is_new=bool(output))
        print(f"page: {path}")
