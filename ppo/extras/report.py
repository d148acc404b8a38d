"""ppo report: a page about a run, or one that compares several."""

import shlex
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from html import escape
from pathlib import Path
from typing import Any

from ppo.errors import ConfigError
from ppo.extras import curves
from ppo.extras.runs import HEAD, row_of, text_of

SECONDS = 10  # between two versions of a page, while a run trains
REFRESH = f'<meta http-equiv="refresh" content="{SECONDS}">'
RECENT = 20  # evaluations and notes that are shown
HIDDEN = "iteration", "step", "seconds", "episodes", "gradient_steps", "env/is_success"
CSS = """
:root { color-scheme: light dark; --page: #fff; --card: #f3f4f7; --text: #1f2430; --faint: #5f6775 }
@media (prefers-color-scheme: dark) {
  :root { --page: #14171c; --card: #1f242c; --text: #e4e7ec; --faint: #9aa3b2 } }
body { margin: 0 auto; max-width: 1200px; padding: 0 1rem 2rem; background: var(--page);
  color: var(--text); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem } progress { width: 100% }
li { list-style: inside "\\25A0\\a0\\a0" } li span { color: var(--text) }
figure { margin: 0; font-weight: 600; font-size: .9rem } .scroll { overflow-x: auto }
svg { display: block; overflow: visible; color: var(--faint); font-weight: normal }
.large, .small { display: flex; flex-wrap: wrap; gap: 1rem; margin-bottom: 1rem }
.large figure { flex: 1 1 480px; max-width: 760px; min-width: 0 }
.small { display: grid; grid-template-columns: repeat(auto-fill, minmax(260px, 1fr)) }
pre { background: var(--card); border-radius: 8px; padding: .6rem .8rem; white-space: pre-wrap }
th, td { padding: .2rem 1.2rem .2rem 0; text-align: left; white-space: nowrap; font-size: .9rem }
th { color: var(--faint); font-weight: normal }
@media (max-width: 640px) { .large text { font-size: 18px } }
"""


@dataclass(frozen=True)
class Flags:
    output: str | None = None
    """HTML file to write (none: report.html in the run's folder, comparison.html for several)."""
    watch: bool = False
    """Rewrite the page every ten seconds while a run trains; an open page reloads."""


def main(names: list[str], options: Flags, flags: dict[str, Any]) -> None:
    """Write the page. Raises ConfigError."""
    curves.refuse(flags)
    runs = curves.read_runs(names)
    path = Path("comparison.html")
    if len(runs) == 1:
        path = runs[0].folder / "report.html"
    if options.output:
        path = Path(options.output)
    if path.suffix != ".html":
        raise ConfigError(f"--output={path}: give a file that ends in .html")
    page = page_of(runs)
    curves.write(path, page)
    print(f"page: {path}", flush=True)
    while options.watch and REFRESH in page:
        time.sleep(SECONDS)
        page = page_of(curves.read_runs(names))
        curves.write(path, page)


def page_of(runs: list[curves.Record]) -> str:
    """Return a page in HTML that needs no other file."""
    if len(runs) == 1:
        title = escape(str(runs[0].folder))
        parts = one_run(runs[0])
    else:
        title = f"{len(runs)} runs"
        parts = several_runs(runs)
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    if any(run.state == "training" for run in runs):
        head += REFRESH
    head += f"<title>{title}</title><style>{CSS}{curves.STYLE}</style>"
    head = f'<!doctype html><html lang="en">{head}<h1>{title}</h1>'
    return "\n".join([head, *parts, "</html>\n"])


def one_run(run: curves.Record) -> Iterator[str]:
    yield f"<p>{escape(progress(run))}</p>"
    if run.state == "training":
        yield f'<progress value="{run.step}" max="{run.total_steps}"></progress>'
    yield from charts([[run]])
    yield table(HEAD, [row_of(run)])
    if recent := run.evaluations[-RECENT:]:
        names: dict[str, Any] = {}
        for one in recent:
            names |= one["env"]
        rows = []
        for one in recent:
            own = map(one["env"].get, names)
            count = len(one["returns"])
            row = [one["step"], count, one["mean"], one["std"]]
            rows.append([*row, *own])
        head = ["step", "episodes", "mean return", "standard deviation", *names]
        yield f"<h2>Evaluations</h2>{table(head, rows)}"
    if run.notes:
        yield "<h2>Notes</h2>"
        yield f"<pre>{escape(chr(10).join(run.notes[-RECENT:]))}</pre>"
    file = shlex.quote(f"{run.folder}/config.json")
    yield "<h2>Settings</h2>"
    yield f"<pre>ppo --config={escape(file)} --resume=none --run_dir=again</pre>"
    yield f"<details><summary>all settings</summary>{table([], run.config.items())}</details>"


def progress(run: curves.Record) -> str:
    """Return a sentence about how far a run has come."""
    text = f"{run.config['env_name']}, {run.state}: {run.step:,} of {run.total_steps:,} steps"
    seconds = run.last("seconds")
    steps = run.total_steps - run.step
    if run.state == "training" and seconds and steps > 0:
        left = seconds / run.step * steps
        text += f", about {timedelta(seconds=round(left))} left"
    if why := run.summary.get("reason"):
        text += f"; it ended early: {why}"
    return text


def several_runs(runs: list[curves.Record]) -> Iterator[str]:
    groups = curves.grouped(runs)
    for index, label in enumerate(groups):
        yield f'<li class="c{index % curves.COLORS}"><span>{escape(label)}</span></li>'
    yield from charts([*groups.values()])
    yield f"<h2>Runs</h2>{table(HEAD, map(row_of, runs))}"
    configs = [group[0].config for group in groups.values()]
    rows = []
    for name in configs[0]:
        values = [text_of(config.get(name)) for config in configs]
        is_same = len({*values}) == 1
        if not is_same and name not in curves.OF_ONE_RUN:
            rows.append([name, *values])
    yield f"<h2>Settings that differ</h2>{table(['', *groups], rows)}"


def charts(groups: list[list[curves.Record]]) -> Iterator[str]:
    """Yield charts of all metrics, the most important first."""
    known: dict[str, Any] = {}
    for runs in groups:
        for run in runs:
            known |= run.metrics
    others = [*curves.TITLES, *HIDDEN]
    small = [name for name in known if name not in others]
    yield "<p>Over environment steps:</p>"
    for kind, names, width, height in (
        ("large", curves.TITLES, 600, 280),
        ("small", small, 300, 170),
    ):
        yield f'<div class="{kind}">'
        for name in names:
            if chart := curves.draw(groups, name, width, height):
                title = escape(curves.TITLES.get(name, name))
                about = f'viewBox="0 0 {width} {height}" role="img" aria-label="{title}"'
                yield f"<figure>{title}<svg {about}>{chart}</svg></figure>"
        yield "</div>"


def table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    text = "".join(f"<th>{escape(x)}" for x in head)
    for row in rows:
        cells = "".join(f"<td>{escape(text_of(x))}" for x in row)
        text += f"\n<tr>{cells}"
    return f'<div class="scroll"><table><tr>{text}</table></div>'
