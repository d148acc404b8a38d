"""Loggers: callbacks that show a run's metrics somewhere."""

import csv
import io
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ppo.callbacks import Callback
from ppo.checkpoint import write
from ppo.config import Config
from ppo.errors import ConfigError, suggest, wrapped
from ppo.extras import LOGGERS
from ppo.imports import import_named
from ppo.rollout import Metrics
from ppo.statistics import RETURN

if TYPE_CHECKING:
    from ppo.policy import Evaluation
    from ppo.run import Run

SECONDS_BETWEEN_LINES = 5.0
SHOWN = {"return": RETURN, "length": "episode_length_mean", "KL": "approx_kl"}


class Logger(Callback):
    """Base class of loggers. One that raises is dropped with a warning, and training goes on."""


class MetricsFile(Logger):
    """Write metrics.csv, without the rows that a resumed run repeats, and evaluations.jsonl."""

    def on_start(self, run: "Run") -> None:
        self.path = run.folder.path / "metrics.csv"
        rows = [row for row in read_rows(self.path) if int(row["iteration"]) <= run.iteration]
        self.columns = [*rows[0]] if rows else []
        if self.path.exists():
            self._rewrite(rows)

    def on_iteration(self, run: "Run") -> None:
        row = {x: f"{y:.6g}" if isinstance(y, float) else y for x, y in run.metrics.items()}
        if new := [name for name in row if name not in self.columns]:
            self.columns += new
            self._rewrite([*read_rows(self.path), row])
        else:
            with self.path.open("a", newline="") as file:
                csv.DictWriter(file, self.columns).writerow(row)

    def on_evaluation(self, run: "Run", result: "Evaluation") -> None:
        with (run.folder.path / "evaluations.jsonl").open("a") as file:
            file.write(json.dumps({"step": run.step, **asdict(result)}) + "\n")

    def _rewrite(self, rows: list[Metrics]) -> None:
        text = io.StringIO()
        if rows:
            writer = csv.DictWriter(text, self.columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
        write(self.path, text.getvalue().encode())


def read_rows(path: Path) -> list[Metrics]:
    """Read the rows of metrics.csv, but for an unfinished last line; none if there is no file."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return []
    rows = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1]))
    return [row for row in rows if (row.get("iteration") or "").isdigit() and None not in row]


def show(*lines: str) -> None:
    """Print lines, broken between words at 80 columns."""
    print(*map(wrapped, lines), sep="\n", flush=True)


class Console(Logger):
    """Print a line every few seconds, the result of each evaluation, and what to try if the final
    one is below the environment's reward_threshold. notes: to print first."""

    def __init__(self, notes: Sequence[str]) -> None:
        self.notes = notes
        self.last_time = -SECONDS_BETWEEN_LINES

    def on_start(self, run: "Run") -> None:
        show(*self.notes, f"run folder: {run.folder.shown}")
        if run.iteration and run.is_over:
            show(f"all {run.step:,} steps are done: train longer with a larger --total_steps")

    def on_iteration(self, run: "Run") -> None:
        is_last = run.iteration == run.config.iterations or run.stop_reason
        now = time.monotonic()
        if now - self.last_time < SECONDS_BETWEEN_LINES and not is_last:
            return
        self.last_time = now
        metrics = run.metrics
        parts = [
            f"step {run.step:,} of {run.config.iterations * run.config.rollout_size:,}",
            f"{metrics['steps_per_second']:,.0f} steps/s",
        ]
        for label, name in SHOWN.items():
            if metrics.get(name) is not None:
                parts.append(f"{label} {metrics[name]:.4g}")
        if run.stop_reason:
            parts.append(f"the run ends early: {run.stop_reason}")
        show(", ".join(parts))

    def on_evaluation(self, run: "Run", result: "Evaluation") -> None:
        self.result = result
        if result.returns:
            spread = f"{result.mean:.4g} +- {result.std:.3g} (standard deviation)"
            show(f"evaluation: return {spread}, {len(result.returns)} episodes")

    def on_end(self, run: "Run") -> None:
        result = self.result
        if result.mean is None or not run.iteration:
            return
        spec = run.spaces.of_evaluations().make_env.spec
        threshold = spec.reward_threshold
        if threshold is not None and result.mean < threshold:
            solved = f"this is below {threshold:g}, the return at which {spec.id} counts as solved"
            more = f"--resume={run.folder.shown} --total_steps={2 * run.step}"
            show(f"{solved}: train longer with {more}, or try another --seed")


def make_loggers(config: Config, notes: Sequence[str]) -> list[Callback]:
    """Make the loggers of a run. Raises ConfigError for an unknown one, or a missing package."""
    loggers: list[Callback] = [MetricsFile()]
    if config.logger:
        loggers.append(Console(notes))
    for name in dict.fromkeys(",".join(config.logger).split(",")):
        if name in ("console", ""):
            continue
        if name not in LOGGERS:
            hint = suggest(name, ["console", *LOGGERS, "none"])
            raise ConfigError(f"--logger={name} is unknown{hint}")
        loggers.append(import_named(LOGGERS[name], f"logger={name}", Logger)())
    return loggers
