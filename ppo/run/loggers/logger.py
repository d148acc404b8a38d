"""Where metrics go: always to metrics.csv; to the console, TensorBoard and Weights & Biases if asked."""

import csv
import io
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ppo.algorithm.learner import Histograms
from ppo.config.config import Config
from ppo.run.folder import RunFolder
from ppo.run.loggers.tensorboard import TensorBoard
from ppo.run.loggers.wandb import WandbThread
from ppo.run.reader import METRICS, Row
from ppo.system.files import AppendedFile, atomic_write


class Logger(AbstractContextManager):
    """Writes metrics.csv in the run's folder, and to the console: on a terminal a bar; elsewhere a line every 5 seconds
    and for the first and the last iteration; or everywhere a line every log_every iterations. verbose=2: all settings
    first, and all metrics with each line. Leaving its context closes all. rows: of a run that is resumed, as read_rows
    returns them; no failure of a logger ends a run."""

    def __init__(
        self, config: Config, run: RunFolder, notes: Sequence[str], rows: Sequence[Row] = ()
    ) -> None:
        self.config, self.run, self.rows = config, run, list(rows)
        self.start, self.next_line, self.first_step = (
            time.monotonic(),
            0.0,
            int(rows[-1]["step"]) if rows else 0,
        )
        self.sinks: dict[str, Any] = {}
        for name in {"tensorboard", "wandb"} & {*config.logger.split(",")}:
            with self._guard(name):
                is_board = name == "tensorboard"
                self.sinks[name] = (
                    TensorBoard(run.path, self.first_step + 1)
                    if is_board
                    else WandbThread(config, run)
                )
        self.total_steps = config.iterations * config.rollout_size
        is_quiet = config.logger == "none" or not config.verbose
        self.console = Console(highlight=False, markup=False, soft_wrap=True, quiet=is_quiet)
        settings = (
            [f"{name}={value}" for name, value in config.__getstate__().items()]
            if config.verbose > 1
            else []
        )
        self._print("\n".join([*settings, *notes]))
        columns = (
            BarColumn(),
            TextColumn("{task.description}", markup=False),
            TimeRemainingColumn(),
        )
        self.bar = Progress(
            *columns, console=self.console, disable=is_quiet or not self.console.is_terminal
        )
        self.task = self.bar.add_task("starting", total=self.total_steps)
        self.bar.start()
        self.collecting = self.learning = 0.0  # seconds
        self.file: AppendedFile | None = None
        self.is_failing = False

    def log(self, metrics: dict[str, Any], detail: Histograms | None = None) -> None:
        """An iteration's metrics, under the same names each time; on disk at once. detail: for those who show it."""
        self._write(
            {name: f"{x:.6g}" if isinstance(x, float) else x for name, x in metrics.items()}
        )
        self._call_all("log", metrics, detail)
        step, iteration, mean = (
            metrics[name] for name in ("step", "iteration", "episode_return_mean")
        )
        line = f"step {step:,} of {self.total_steps:,}, {metrics['steps_per_second']:,.0f} steps/s"
        line += "" if mean is None else f", return {mean:.1f}"
        line += f", KL {metrics['approx_kl']:.2g}" if "approx_kl" in metrics else ""
        collecting, learning = metrics["seconds_collecting"], metrics["seconds_learning"]
        line += f", {collecting / (collecting + learning):.0%} collecting"
        self.collecting, self.learning = self.collecting + collecting, self.learning + learning
        self.bar.update(self.task, completed=step, description=line)
        now, log_every = time.monotonic(), self.config.log_every
        is_due = self.bar.disable and (now >= self.next_line or step >= self.total_steps)
        if iteration % log_every == 0 if log_every else is_due:
            self.next_line = now + 5
            seconds_per_step = (now - self.start) / (step - self.first_step)
            self._print(f"{line}, {seconds_per_step * (self.total_steps - step):.0f} s left")
            if self.config.verbose > 1:
                known = {name: value for name, value in metrics.items() if value is not None}
                self._print(", ".join(f"{name} {value:.4g}" for name, value in known.items()))

    def finish(self, summary: dict[str, Any]) -> None:
        """What the run came to; not called for one that was cut short."""
        if summary["evaluation"]["episodes"]:
            text = "evaluation: {mean:.1f} +/- {std:.1f} over {episodes} deterministic episodes"
            self._print(text.format(**summary["evaluation"]))
        if total := self.collecting + self.learning:
            share = self.collecting / total
            bound = "environments and acting bound" if share > 0.5 else "the learner bounds"
            self._print(
                f"time: {share:.0%} collecting, {1 - share:.0%} learning, so that {bound} the speed"
            )
        self._call_all("summarize", summary)

    def __exit__(self, *exception: object) -> None:
        if self.file:
            self.file.close()
        self.bar.stop()
        if exception[0] is not KeyboardInterrupt:
            self._call_all("close")

    def _call_all(self, method: str, *arguments: Any) -> None:
        """Have all others do something."""
        for name, sink in list(self.sinks.items()):
            with self._guard(name):
                getattr(sink, method)(*arguments)

    @contextmanager
    def _guard(self, name: str) -> Iterator[None]:
        """What one of the others does; if it cannot, it is done without from then on."""
        try:
            yield
        except Exception as error:
            self.sinks.pop(name, None)
            self.run.event(
                "logger_failed", f"--logger={name}: {error}; training goes on without it"
            )

    def _print(self, text: str) -> None:
        with suppress(OSError):  # whoever listened has gone, or the disk is full that it goes to
            self.console.print(text)

    def _write(self, row: Row) -> None:
        """A row to metrics.csv; the first one with all of the file that it belongs to."""
        text = io.StringIO(newline="")
        writer = csv.DictWriter(
            text, list(row), restval="", extrasaction="ignore", lineterminator="\n"
        )
        try:
            if self.file is None:
                writer.writeheader()
                writer.writerows(self.rows)
                with atomic_write(self.run.path / METRICS) as temporary:
                    temporary.write_text(text.getvalue())
                self.file = AppendedFile(self.run.path / METRICS)
                text.truncate(0)
                text.seek(0)
            writer.writerow(row)
            failure = self.file.append(text.getvalue())
        except OSError as error:
            failure, self.rows = error, [*self.rows, row]
        if failure and not self.is_failing:
            self.run.event(
                "log_delayed",
                f"{METRICS} cannot be written to ({failure}); its rows wait in memory",
            )
        self.is_failing = bool(failure)
