"""ppo report: a page about a run, or one that compares several."""

import shlex
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from ppo.errors import ConfigError
from ppo.extras import curves
from ppo.extras.runs import table_of, text_of

SECONDS = 10  # between two versions of a page, while a run trains
REFRESH = f'<meta http-equiv="refresh" content="{SECONDS}">'
RECENT = 20  # notes that are shown
HIDDEN = "iteration", "step", "seconds", "episodes", "gradient_steps"
CSS = """
:root { color-scheme: light dark; --page: #fff; --card: #f3f4f7; --text: #1f2430; --faint: #5f6775 }
@media (prefers-color-scheme: dark) {
  :root { --page: #14171c; --card: #1f242c; --text: #e4e7ec; --faint: #9aa3b2 } }
body { margin: 0 auto; max-width: 1200px; padding: 0 1rem 2rem; background: var(--page);
  color: var(--text); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem } progress { width: 100% }
li { list-style: none } li svg { display: inline-block; margin-right: .6rem }
figure { margin: 0; max-width: 760px; font-weight: 600; font-size: .9rem }
svg { display: block; overflow: visible; color: var(--faint); font-weight: normal }
.large, .small { display: grid; gap: 1rem; margin-bottom: 1rem } h2 + pre { white-space: pre-wrap }
.large { grid-template-columns: repeat(auto-fit, minmax(min(480px, 100%), 1fr)) }
.small { grid-template-columns: repeat(auto-fill, minmax(260px, 1fr)) } .scroll { overflow-x: auto }
pre { background: var(--card); border-radius: 8px; padding: .6rem .8rem; overflow-x: auto }
th, td { padding: .2rem 1.2rem .2rem 0; text-align: left; white-space: nowrap; font-size: .9rem }
th { color: var(--faint); font-weight: normal } .numbers :is(th, td) { text-align: right }
.runs :is(:first-child, :nth-last-child(2), :nth-last-child(3)) { text-align: left } /* texts */
@media (max-width: 640px) { .large text { font-size: 18px }
  .runs td:first-child { white-space: normal; min-width: 9.5rem; max-width: 11rem } }
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
    usual = runs[0].folder / "report.html" if len(runs) == 1 else "comparison.html"
    path = Path(options.output or usual)
    if path.suffix != ".html":
        raise ConfigError(f"--output={path}: give a file that ends in .html")
    page = page_of(runs, options.watch)
    curves.write(path, page)
    print(f"page: {path}", flush=True)
    while REFRESH in page:
        time.sleep(SECONDS)
        page = page_of(curves.read_runs(names), options.watch)
        curves.write(path, page)


def page_of(runs: list[curves.Record], watch: bool = False) -> str:
    """Return a page in HTML that needs no other file; with watch, it reloads while runs train."""
    if len(runs) == 1:
        title = escape(str(runs[0].folder))
        parts = one_run(runs[0])
    else:
        title = f"{len(runs)} runs"
        parts = several_runs(runs)
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    is_training = any(run.state == "training" for run in runs)
    if is_training and watch:
        head += REFRESH
    head += f"<title>{title}</title><style>{curves.STYLE}{CSS}</style>"
    head = f'<!doctype html><html lang="en">{head}<h1>{title}</h1>'
    if is_training:
        head += f"<p>As of {datetime.now():%Y-%m-%d %H:%M:%S}</p>"
    return "\n".join([head, *parts, "</html>\n"])


def one_run(run: curves.Record) -> Iterator[str]:
    yield f"<p>{escape(progress(run))}</p>"
    yield f"<p>{escape(result(run))}</p>"
    if run.state != "complete":
        yield f'<progress value="{run.step}" max="{run.total_steps}"></progress>'
    is_saved = (run.folder / "checkpoints/last.safetensors").exists()
    if run.state == "stopped" and is_saved:
        folder = shlex.quote(str(run.folder))
        yield f"<p>To continue:</p><pre>ppo --resume={escape(folder)}</pre>"
    yield from charts([[run]])
    if run.notes:
        yield "<h2>Notes</h2>"
        yield f"<pre>{escape(chr(10).join(run.notes[-RECENT:]))}</pre>"
    file = shlex.quote(f"{run.folder}/config.json")
    yield "<h2>Settings</h2><p>To train again with the same settings:</p>"
    yield f"<pre>ppo --config={escape(file)} --resume=none --run_dir=again</pre>"
    kind = "details open" if run.state == "training" else "details"  # also after a reload
    yield f"<{kind}><summary>all settings</summary>{table([], run.config.items())}</details>"


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


def result(run: curves.Record) -> str:
    """Return what a run has reached, in one line; "" if nothing is known."""
    parts = []
    value = run.last(curves.RETURN)
    if value is not None:
        parts.append(f"return in training {text_of(value)}")
    if run.evaluations:
        last = run.evaluations[-1]
        kind = "final" if run.state == "complete" else "last"
        text = f"{text_of(last['mean'])} \N{PLUS-MINUS SIGN} {text_of(last['std'])}"
        parts.append(f"{kind} evaluation {text} ({len(last['returns'])} episodes)")
        best = max(run.evaluations, key=itemgetter("mean"))
        if best["mean"] > last["mean"]:
            parts.append(f"best evaluation {text_of(best['mean'])} at step {best['step']:,}")
    rate = run.last(curves.SUCCESS)
    if rate is not None:
        parts.append(f"success rate in training {rate:.0%}")
    return "; ".join(parts).capitalize()


def several_runs(runs: list[curves.Record]) -> Iterator[str]:
    groups = curves.grouped(runs)
    head, *rows = table_of(runs)
    yield f"<h2>Runs</h2>{table(head, rows, 'numbers runs')}<h2>Curves</h2>"
    for index, label in enumerate(groups):
        line = curves.path("curve", index, ["0 6", "24 6"])
        yield f'<li><svg width="24" height="12">{line}</svg>{escape(label)}</li>'
    yield from charts([*groups.values()])
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
            known |= run.series
    others = [*curves.TITLES, *HIDDEN]
    small = [name for name in known if name not in others and varies(groups, name)]
    yield f"<p>{'Horizontal axes: environment steps.' if known else 'No values yet.'}</p>"
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


def varies(groups: list[list[curves.Record]], name: str) -> bool:
    known = [curves.curve(runs, name)[2:] for runs in groups]
    values = np.hstack(known)
    is_single = len(values[0]) == 1
    return is_single or bool(np.ptp(values))


def table(head: Iterable[str], rows: Iterable[Any], kind: str = "") -> str:
    text = "".join(f"<th>{escape(x)}" for x in head)
    for row in rows:
        cells = "".join(f"<td>{escape(text_of(x))}" for x in row)
        text += f"\n<tr>{cells}"
    return f'<div class="scroll"><table class="{kind}"><tr>{text}</table></div>'
