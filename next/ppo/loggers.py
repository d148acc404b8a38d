"""Loggers: callbacks that show a run's metrics somewhere."""

import csv
import io
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ppo.callbacks import Callback
from ppo.checkpoint import write
from ppo.config import Config
from ppo.errors import ConfigError, suggest
from ppo.statistics import RETURN

if TYPE_CHECKING:
    from ppo.evaluation import Evaluation
    from ppo.run import Run

METRICS, EVALUATIONS = "metrics.csv", "evaluations.jsonl"
SECONDS_BETWEEN_LINES = 5.0
HISTOGRAM_EVERY = 10  # iterations
SHOWN = {
    "return": RETURN,
    "length": "episode_length_mean",
    "value loss": "value_loss",
    "KL": "approx_kl",
    "entropy": "entropy",
}


class Logger(Callback):
    """Base class of loggers. One that raises is dropped with a warning, and training goes on."""


class MetricsFile(Callback):
    """Write metrics.csv, a row for each iteration, and evaluations.jsonl, a line for each
    evaluation. Files that are rewritten are written under a temporary name first."""

    def on_start(self, run: "Run") -> None:
        self.path = run.folder.path / METRICS
        self.evaluations = run.folder.path / EVALUATIONS
        rows = [row for row in read_rows(self.path) if int(row["iteration"]) <= run.iteration]
        self.columns = [*rows[0]] if rows else []
        if self.path.exists():
            write(self.path, _as_csv(self.columns, rows).encode() if rows else b"")
        if self.evaluations.exists():
            lines = read_evaluations(self.evaluations)
            kept = [json.dumps(x) + "\n" for x in lines if x["step"] <= run.step]
            write(self.evaluations, "".join(kept).encode())

    def on_iteration(self, run: "Run") -> None:
        row = {name: _shown(value) for name, value in run.metrics.items()}
        if new := [name for name in row if name not in self.columns]:
            self.columns += new
            content = _as_csv(self.columns, [*read_rows(self.path), row])
            write(self.path, content.encode())
            return
        with self.path.open("a", newline="") as file:
            csv.DictWriter(file, self.columns).writerow(row)

    def on_evaluation(self, run: "Run", result: "Evaluation") -> None:
        with self.evaluations.open("a") as file:
            file.write(json.dumps({"step": run.step, **asdict(result)}) + "\n")


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read the rows of metrics.csv, but for an unfinished last line; none if there is no file."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return []
    rows = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1]))
    return [row for row in rows if (row.get("iteration") or "").isdigit() and None not in row]


def read_evaluations(path: Path) -> list[dict[str, Any]]:
    """Read the lines of evaluations.jsonl, but for unfinished ones."""
    found = []
    for line in path.read_text(errors="replace").splitlines():
        try:
            content = json.loads(line)
        except ValueError:
            continue
        if isinstance(content, dict) and isinstance(content.get("step"), int):
            found.append(content)
    return found


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _as_csv(columns: Sequence[str], rows: Sequence[dict[str, str]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


class Console(Logger):
    """Print a line every few seconds, and what evaluations came to. notes: to print first."""

    def __init__(self, notes: Sequence[str] = ()) -> None:
        self.notes = notes

    def on_start(self, run: "Run") -> None:
        self.last_time = time.monotonic()
        print(*self.notes, f"run folder: {run.folder.shown}", sep="\n", flush=True)

    def on_iteration(self, run: "Run") -> None:
        is_last = run.iteration == run.config.iterations
        now = time.monotonic()
        if run.iteration > 1 and now - self.last_time < SECONDS_BETWEEN_LINES and not is_last:
            return
        self.last_time = now
        metrics = run.metrics
        parts = [f"step {run.step:,} of {run.config.iterations * run.config.rollout_size:,}"]
        parts.append(f"{metrics['steps_per_second']:,.0f} steps/s")
        for label, name in SHOWN.items():
            if metrics.get(name) is not None:
                parts.append(f"{label} {metrics[name]:.4g}")
        print(", ".join(parts), flush=True)

    def on_evaluation(self, run: "Run", result: "Evaluation") -> None:
        if result.episodes:
            print(
                f"evaluation: return {result.mean:.1f} +- {result.std:.1f} (standard deviation), "
                f"{result.episodes} episodes",
                flush=True,
            )


def _numbers(run: "Run") -> dict[str, float]:
    return {name: x for name, x in run.metrics.items() if x is not None}


class TensorBoard(Logger):
    """Write scalars for TensorBoard to the run's folder, and a histogram of episode returns."""

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ConfigError("--logger=tensorboard: pip install tensorboard") from error
        self.make_writer = SummaryWriter

    def on_start(self, run: "Run") -> None:
        self.writer = self.make_writer(str(run.folder.path), purge_step=run.step)

    def on_iteration(self, run: "Run") -> None:
        for name, value in _numbers(run).items():
            self.writer.add_scalar(name, value, run.step)
        if run.is_due(HISTOGRAM_EVERY) and run.episodes.returns:
            self.writer.add_histogram("episode_returns", np.array(run.episodes.returns), run.step)

    def on_end(self, run: "Run") -> None:
        self.writer.close()


class WandB(Logger):
    """Log to Weights & Biases, under the name of the run's folder; a resumed run goes on there.
    Project, entity and so on are those of wandb's environment variables."""

    def __init__(self) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ConfigError("--logger=wandb: pip install wandb") from error
        self.wandb: Any = wandb

    def on_start(self, run: "Run") -> None:
        name = run.folder.path.name
        self.run = self.wandb.init(
            project=os.environ.get("WANDB_PROJECT", "ppo"),
            name=name,
            id=os.environ.get("WANDB_RUN_ID", name),
            resume="allow",
            dir=str(run.folder.path),
            config=run.config.to_json(),
            settings=self.wandb.Settings(silent=True),
        )

    def on_iteration(self, run: "Run") -> None:
        values: dict[str, Any] = _numbers(run)
        if run.is_due(HISTOGRAM_EVERY) and run.episodes.returns:
            values["episode_returns"] = self.wandb.Histogram(run.episodes.returns)
        self.run.log(values, step=run.step)

    def on_evaluation(self, run: "Run", result: "Evaluation") -> None:
        if result.mean is not None:
            self.run.summary["evaluation_return_mean"] = result.mean

    def on_end(self, run: "Run") -> None:
        self.run.finish()


LOGGERS: dict[str, type[Logger]] = {
    "console": Console,
    "tensorboard": TensorBoard,
    "wandb": WandB,
}


def make_loggers(config: Config, notes: Sequence[str]) -> list[Callback]:
    """Make the loggers of a run: metrics.csv, the console unless --logger=none, and others. notes:
    for the user. Raises ConfigError for an unknown one, or a missing package."""
    names = dict.fromkeys(config.logger)
    if names:
        names = {"console": None, **names}
    for name in names:
        if name not in LOGGERS:
            raise ConfigError(f"--logger={name} is unknown{suggest(name, [*LOGGERS, 'none'])}")
    others = [LOGGERS[name]() for name in names if name != "console"]
    return [MetricsFile(), *([Console(notes)] if names else []), *others]
