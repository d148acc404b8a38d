"""Write a report of a run: one page that needs nothing but a browser."""

import base64
import json
import shlex
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import Any

from ppo.analysis.plots import PANELS, draw
from ppo.config.config import Config
from ppo.config.flags import as_arguments
from ppo.policy.policy import Policy, best_video
from ppo.run.reader import RETURN, RunRecord, read_run
from ppo.system.files import atomic_write, read_json
from ppo.system.imports import extra

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em }}
body {{ color: #222 }} summary {{ cursor: pointer }} video {{ max-width: 100% }}
table {{ border-collapse: collapse }} tr {{ border-bottom: 1px solid #eee }}
td, th {{ text-align: left; padding: .15em 1em .15em 0; vertical-align: top }}
td {{ font-family: ui-monospace, monospace; font-size: 13px }}
pre {{ background: #f6f6f6; padding: .8em; overflow-x: auto }}
</style>
<h1>{title}</h1>
{content}
</html>
"""
EVALUATION = (
    "episodes",
    "mean",
    "std",
    "median",
    "interval_95",
    "deterministic",
    "seed",
    "checkpoint",
    "env",
)


def report_run(folder: Path, policy: Policy) -> None:
    """Write a run's curve.png and report.html. Raises OSError, and ConfigError if it is no run."""
    run = read_run(folder)
    draw([run], folder / "curve.png")
    write_report(run, best_video(folder, policy), folder / "report.html")


def write_report(run: RunRecord, video: Path | None, path: Path) -> None:
    """Write the page. video: of the best episode, .mp4. Raises OSError."""
    title = escape(run.folder.absolute().name)
    page = PAGE.format(title=title, content="\n".join(_sections(run, video)))
    with atomic_write(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _sections(run: RunRecord, video: Path | None) -> Iterator[str]:
    summary = read_json(run.folder / "summary.json", {})
    evaluations = [summary.pop("evaluation", None)]
    evaluations += read_json(run.folder / "evaluation.json", [])
    yield _table(summary.items())
    yield "<h2>Learning</h2>"
    yield _curves(run)
    rows = [[made.get(name, "") for name in EVALUATION] for made in evaluations if made]
    if rows:
        yield "<h2>Evaluation</h2>"
        yield _table([EVALUATION, *rows])
    if video:
        content = base64.b64encode(video.read_bytes()).decode()
        yield "<h2>Best episode</h2>"
        yield f'<video controls loop src="data:video/mp4;base64,{content}"></video>'
    yield "<h2>Reproduction</h2>"
    yield f"<pre>{escape(command(run.config))}</pre>"
    yield _table((name, run.config.get(name)) for name in ("git_commit", "versions"))
    settings = _table(run.config.items())
    yield f"<details><summary>All settings</summary>{settings}</details>"


def command(config: dict[str, Any]) -> str:
    """Return the command line that repeats a run."""
    ignored = {"preset", *Config.names(scope="run")}
    names = [name for name in Config.names() if name in config and name not in ignored]
    settings = {name: config[name] for name in names}
    return shlex.join(["python", "main.py", "--preset=none", *as_arguments(settings)])


def _curves(run: RunRecord) -> str:
    """Draw returns, the metrics of PANELS and the environment's own over steps, to be zoomed
    together."""
    with extra("report"):
        from plotly.subplots import make_subplots  # heavy

    own = {name: name for name in run.metrics if name.startswith("env/")}
    labels = {RETURN: "return", **PANELS, **own}
    shown = {name: label for name, label in labels.items() if name in run.metrics}
    figure = make_subplots(
        rows=len(shown),
        row_heights=[3] + [1] * (len(shown) - 1),
        shared_xaxes=True,
        vertical_spacing=0.18 / len(shown),
    )
    steps = run.metrics["step"].tolist()
    for row, (name, label) in enumerate(shown.items(), 1):
        values = run.metrics[name].tolist()
        figure.add_scatter(x=steps, y=values, name=label, mode="lines", row=row, col=1)
        figure.update_yaxes(title_text=label, row=row, col=1)
    figure.update_xaxes(title_text="environment steps", row=len(shown), col=1)
    figure.update_layout(
        height=250 + 130 * len(shown),
        showlegend=False,
        margin={"t": 20},
        template="plotly_white",
    )
    options = {"displaylogo": False, "scrollZoom": True}
    return figure.to_html(full_html=False, include_plotlyjs=True, config=options)


def _table(rows: Iterable[Iterable[Any]]) -> str:
    table = ""
    for row in rows:
        cells = "".join(f"<td>{escape(_text(cell))}</td>" for cell in row)
        table += f"<tr>{cells}</tr>"
    return f"<table>{table}</table>"


def _text(value) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return json.dumps(value)
