"""Where metrics go: always to metrics.csv; to the console and to Weights & Biases if asked."""

import csv
import dataclasses
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ppo.config import Config, ConfigError

SECONDS_BETWEEN_LINES = 5.0


class Logger:
    """What a logger is told. This one tells others; the rest override what they have a use for."""

    def __init__(self, *others: "Logger") -> None:
        self.others = others

    def __enter__(self) -> "Logger":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def note(self, text: str) -> None:
        """A line for the user."""
        for other in self.others:
            other.note(text)

    def log(self, metrics: dict[str, Any]) -> None:
        """An iteration's metrics, under the same names each time."""
        for other in self.others:
            other.log(metrics)

    def finish(self, summary: dict[str, Any]) -> None:
        """What the run came to, unless it was cut short."""
        for other in self.others:
            other.finish(summary)

    def close(self) -> None:
        """The end in any case."""
        for other in self.others:
            other.close()


class CSVLogger(Logger):
    """One row for each iteration, in the file as soon as it is logged."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.file = path.open("w", newline="", buffering=1)
        self.writer: csv.DictWriter | None = None

    def log(self, metrics: dict[str, Any]) -> None:
        if self.writer is None:
            self.writer = csv.DictWriter(self.file, list(metrics), lineterminator="\n")
            self.writer.writeheader()
        self.writer.writerow(metrics)

    def close(self) -> None:
        self.file.close()


class ConsoleLogger(Logger):
    """On a terminal, a bar; elsewhere a line every few seconds, and for the first and the last iteration."""

    def __init__(self, total_steps: int) -> None:
        super().__init__()
        self.total_steps, self.start, self.next_line = total_steps, time.monotonic(), 0.0
        self.console = Console(highlight=False, markup=False, soft_wrap=True)
        columns = (BarColumn(), TextColumn("{task.description}", markup=False), TimeRemainingColumn())
        self.bar = Progress(*columns, console=self.console, disable=not self.console.is_terminal)
        self.task = self.bar.add_task("starting", total=total_steps)
        self.bar.start()

    def note(self, text: str) -> None:
        self.console.print(text)

    def log(self, metrics: dict[str, Any]) -> None:
        step, now, mean = metrics["step"], time.monotonic(), metrics["episode_return_mean"]
        line = f"step {step:,} of {self.total_steps:,}, {metrics['steps_per_second']:,.0f} steps/s"
        line += "" if mean is None else f", return {mean:.1f}"
        self.bar.update(self.task, completed=step, description=line)
        if self.bar.disable and (now >= self.next_line or step >= self.total_steps):
            self.next_line = now + SECONDS_BETWEEN_LINES
            self.console.print(f"{line}, {(now - self.start) * (self.total_steps / step - 1):.0f} s left")

    def finish(self, summary: dict[str, Any]) -> None:
        self.bar.stop()
        if summary["evaluation"]["episodes"]:
            text = "evaluation: {mean:.1f} +/- {std:.1f} over {episodes} deterministic episodes"
            self.console.print(text.format(**summary["evaluation"]))

    def close(self) -> None:
        self.bar.stop()


class WandbLogger(Logger):
    """Weights & Biases, whose package is imported here and nowhere else: it is heavy."""

    def __init__(self, config: Config, folder: Path) -> None:
        import wandb

        super().__init__()
        try:
            self.run = wandb.init(dir=folder, name=folder.name, config=dataclasses.asdict(config))
        except wandb.Error as error:
            fix = "call wandb login, or log without an account by WANDB_MODE=offline"
            raise ConfigError(f"--logger=wandb: {error}; {fix}") from error

    def log(self, metrics: dict[str, Any]) -> None:
        self.run.log(metrics, step=metrics["step"])

    def finish(self, summary: dict[str, Any]) -> None:
        self.run.summary.update(summary)

    def close(self) -> None:
        self.run.finish()


def make_logger(config: Config, folder: Path) -> Logger:
    """All loggers that the config asks for, as one. folder: the run's."""
    loggers: list[Logger] = [CSVLogger(folder / "metrics.csv")]
    if config.logger != "none":
        loggers.append(ConsoleLogger(config.iterations * config.batch_size))
    if config.logger == "wandb":
        loggers.append(WandbLogger(config, folder))
    return Logger(*loggers)
