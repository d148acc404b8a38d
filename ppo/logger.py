"""Where metrics go: always to metrics.csv; to the console and to Weights & Biases if asked."""

import csv
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ppo.config import Config, ConfigError

COLLAPSE = 1.0  # a KL from which the policy often does not come back


class Logger(AbstractContextManager):
    """Writes metrics.csv in the run's folder, and to the console: on a terminal a bar; elsewhere a line every 5 seconds
    and for the first and the last iteration; or everywhere a line every log_every iterations. verbose=2: all settings
    first, and all metrics with each line. Leaving its context closes all."""

    def __init__(self, config: Config, folder: Path, notes: Sequence[str]) -> None:
        self.wandb = _start_wandb(config, folder) if config.logger == "wandb" else None
        self.config, self.start, self.next_line = config, time.monotonic(), 0.0
        self.total_steps = config.iterations * config.rollout_size
        is_quiet = config.logger == "none" or not config.verbose
        self.console = Console(highlight=False, markup=False, soft_wrap=True, quiet=is_quiet)
        settings = [f"{name}={value}" for name, value in config.__getstate__().items()] if config.verbose > 1 else []
        self.console.print("\n".join([*settings, *notes]))
        columns = (BarColumn(), TextColumn("{task.description}", markup=False), TimeRemainingColumn())
        self.bar = Progress(*columns, console=self.console, disable=is_quiet or not self.console.is_terminal)
        self.task = self.bar.add_task("starting", total=self.total_steps)
        self.bar.start()
        self.file = (folder / "metrics.csv").open("w", newline="", buffering=1)
        self.writer: csv.DictWriter | None = None

    def log(self, metrics: dict[str, Any]) -> None:
        """An iteration's metrics, under the same names each time; on disk at once."""
        if self.writer is None:
            self.writer = csv.DictWriter(self.file, list(metrics), lineterminator="\n")
            self.writer.writeheader()
        self.writer.writerow({name: f"{x:.6g}" if isinstance(x, float) else x for name, x in metrics.items()})
        if self.wandb:
            self.wandb.log(metrics, step=metrics["step"])
        step, iteration, mean = (metrics[name] for name in ("step", "iteration", "episode_return_mean"))
        line = f"step {step:,} of {self.total_steps:,}, {metrics['steps_per_second']:,.0f} steps/s"
        line += "" if mean is None else f", return {mean:.1f}"
        self.bar.update(self.task, completed=step, description=line)
        if not (kl := metrics.get("approx_kl", 0.0)) <= COLLAPSE:
            fix = "lower --learning_rate, or set --target_kl"
            self.console.print(f"warning: iteration {iteration} went far, KL {kl:.1f}: {fix}")
        now, log_every = time.monotonic(), self.config.log_every
        is_due = self.bar.disable and (now >= self.next_line or step >= self.total_steps)
        if iteration % log_every == 0 if log_every else is_due:
            self.next_line = now + 5
            self.console.print(f"{line}, {(now - self.start) * (self.total_steps / step - 1):.0f} s left")
            if self.config.verbose > 1:
                known = {name: value for name, value in metrics.items() if value is not None}
                self.console.print(", ".join(f"{name} {value:.4g}" for name, value in known.items()))

    def finish(self, summary: dict[str, Any]) -> None:
        """What the run came to; not called for one that was cut short."""
        if summary["evaluation"]["episodes"]:
            text = "evaluation: {mean:.1f} +/- {std:.1f} over {episodes} deterministic episodes"
            self.console.print(text.format(**summary["evaluation"]))
        if self.wandb:
            self.wandb.summary.update(summary)

    def __exit__(self, *exception: object) -> None:
        self.file.close()
        self.bar.stop()
        if self.wandb:
            self.wandb.finish()


def _start_wandb(config: Config, folder: Path) -> Any:
    """A run of Weights & Biases, whose package is imported here and nowhere else: it is heavy."""
    import wandb

    try:
        return wandb.init(dir=folder, name=folder.name, config=config.__getstate__())
    except wandb.Error as error:
        fix = "or log without an account, by WANDB_MODE=offline"
        raise ConfigError(f"--logger=wandb: {error}; {fix}") from error
