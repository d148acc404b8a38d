"""A run on one page, which needs nothing but a browser."""

import base64
import json
import shlex
from collections.abc import Iterator
from dataclasses import fields
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from ppo.analysis.plots import PANELS, RETURN, Run
from ppo.config.config import ELSEWHERE, Config
from ppo.run.folder import atomic_write

LEFT_OUT = {"preset", *ELSEWHERE}
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; color: #222 }}
table {{ border-collapse: collapse }} td, th {{ text-align: left; padding: .15em 1em .15em 0; vertical-align: top }}
td {{ font-family: ui-monospace, monospace; font-size: 13px }} tr {{ border-bottom: 1px solid #eee }}
pre {{ background: #f6f6f6; padding: .8em; overflow-x: auto }} summary {{ cursor: pointer }} video {{ max-width: 100% }}
</style>
<h1>{title}</h1>
{content}
</html>
"""


def write_report(run: Run, video: Path | None, path: Path) -> None:
    """Write the page. video: of its best episode, .mp4. Raises OSError."""
    content = "\n".join(_sections(run, video))
    with atomic_write(path) as temporary:
        temporary.write_text(
            PAGE.format(title=escape(run.folder.absolute().name), content=content), encoding="utf-8"
        )


def _sections(run: Run, video: Path | None) -> Iterator[str]:
    summary = _read(run.folder / "summary.json") or {}
    yield _table({name: value for name, value in summary.items() if name != "evaluation"})
    yield "<h2>Learning</h2>"
    yield _curves(run)
    later = _read(run.folder / "evaluation.json")
    evaluations = [
        *filter(None, [summary.get("evaluation")]),
        *(later if isinstance(later, list) else []),
    ]
    if evaluations:
        yield "<h2>Evaluation</h2>"
        names = (
            "episodes",
            "mean",
            "std",
            "median",
            "interval_95",
            "deterministic",
            "seed",
            "checkpoint",
        )
        rows = ({name: evaluation.get(name, "") for name in names} for evaluation in evaluations)
        yield _rows([names, *(tuple(row.values()) for row in rows)])
    if video:
        content = base64.b64encode(video.read_bytes()).decode()
        yield f'<h2>Best episode</h2>\n<video controls loop src="data:video/mp4;base64,{content}"></video>'
    yield "<h2>How to repeat it</h2>"
    yield f"<pre>{escape(command(run.config))}</pre>"
    about = {name: run.config.get(name) for name in ("git_commit", "versions")}
    yield _table(about)
    yield f"<details><summary>All settings</summary>{_table(run.config)}</details>"


def command(config: dict[str, Any]) -> str:
    """The command line that makes the same run again."""
    names = [
        option.name
        for option in fields(Config)
        if option.name in config and option.name not in LEFT_OUT
    ]
    flags = [f"--{name}={_flag(config[name])}" for name in names]
    return shlex.join(["python", "main.py", "--preset=none", *flags])


def _flag(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict) else "none" if value is None else str(value)


def _curves(run: Run) -> str:
    """Returns against steps, and what else there is to see, to be zoomed together."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    shown = {
        RETURN: "return",
        **{name: label for name, label in PANELS.items() if name in run.metrics},
    }
    layout: Any = {"rows": len(shown), "shared_xaxes": True, "vertical_spacing": 0.03}
    figure = make_subplots(row_heights=[3, *[1] * (len(shown) - 1)], **layout)
    for row, (name, label) in enumerate(shown.items(), 1):
        values = [None if np.isnan(x) else float(x) for x in run.metrics[name]]
        steps = run.metrics["step"].tolist()
        figure.add_trace(go.Scatter(x=steps, y=values, name=label, mode="lines"), row=row, col=1)
        figure.update_yaxes(title_text=label, row=row, col=1)
    figure.update_xaxes(title_text="environment steps", row=len(shown), col=1)
    figure.update_layout(
        height=250 + 130 * len(shown), showlegend=False, margin={"t": 20}, template="plotly_white"
    )
    return figure.to_html(
        full_html=False, include_plotlyjs=True, config={"displaylogo": False, "scrollZoom": True}
    )


def _table(values: dict[str, Any]) -> str:
    return _rows(list(values.items()))


def _rows(rows: list[tuple]) -> str:
    cells = ("".join(f"<td>{escape(_text(cell))}</td>" for cell in row) for row in rows)
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return value if isinstance(value, str) else json.dumps(value)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
