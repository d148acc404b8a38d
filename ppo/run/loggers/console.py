"""Progress on the console."""

import os
import sys
import time
from contextlib import suppress

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ppo.algorithm.rollout import Metrics
from ppo.config.config import to_repeat
from ppo.config.flags import command_line
from ppo.run.loggers.logger import Histograms, Logger
from ppo.run.summary import RunSummary
from ppo.system.output import discard

SECONDS_BETWEEN_LINES = 5


class NonExitingConsole(Console):
    """Raise EOFError when the reader of the output is gone; rich itself would end the process."""

    def on_broken_pipe(self) -> None:
        discard(sys.stdout)
        raise EOFError("nobody reads its output any more")


class ConsoleLogger(Logger):
    """Show a progress bar on a terminal; otherwise print a line every 5 seconds, and for the first
    and the last planned iteration.

    With log_every, print a line every log_every iterations instead, also on a terminal. With
    verbose=2, print all settings first, and all metrics after each line. show: metrics to add to
    each line, the environment's own with or without env/, "-" for one without a value.
    """

    def __post_init__(self) -> None:
        config = self.config
        self.start_time = time.monotonic()
        self.next_line = 0.0
        self.shown = config.show.split(",") if config.show else []
        self.total_steps = config.iterations * config.rollout_size
        self.seconds = {"collecting": 0.0, "learning": 0.0}
        self.console = NonExitingConsole(highlight=False, markup=False, soft_wrap=True)
        lines = [*self.notes]
        if config.verbose > 1:
            lines[:0] = [f"{name}={value}" for name, value in config.__getstate__().items()]
        if self.total_steps != config.total_steps and not config.num_iterations:
            lines.append(
                f"trains {self.total_steps:,} steps, as whole rollouts of {config.rollout_size:,}"
            )
        self._print("\n".join(lines))
        self.bar = Progress(
            BarColumn(),
            TextColumn("{task.description}", markup=False),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.task = self.bar.add_task("starting", total=self.total_steps)
        self.bar.start()

    def log(self, metrics: Metrics, histograms: Histograms | None) -> None:
        for phase in self.seconds:
            self.seconds[phase] += metrics[f"seconds_{phase}"]
        step = metrics["step"]
        known = {name: value for name, value in metrics.items() if value is not None}
        line = self._describe(known)
        self.bar.update(self.task, completed=step, description=line)
        if "evaluation_return_mean" in known:
            self._print(f"step {step:,}: evaluation {known['evaluation_return_mean']:.1f}")
        now = time.monotonic()
        if log_every := self.config.log_every:
            is_due = metrics["iteration"] % log_every == 0
        else:
            is_late = now >= self.next_line or step >= self.total_steps
            is_due = self.bar.disable and is_late
        if is_due:
            self.next_line = now + SECONDS_BETWEEN_LINES
            seconds_per_step = (now - self.start_time) / (step - self.first_step)
            self._print(f"{line}, {seconds_per_step * (self.total_steps - step):.0f} s left")
            if self.config.verbose > 1:
                self._print(", ".join(f"{name} {value:.4g}" for name, value in known.items()))

    def show_progress(self, done: int) -> None:
        text = f"evaluation: {done} of {self.config.eval_episodes} episodes"
        self.bar.update(self.task, description=text)
        now = time.monotonic()
        if self.bar.disable and now >= self.next_line:
            self.next_line = now + SECONDS_BETWEEN_LINES
            self._print(text)

    def summarize(self, summary: RunSummary) -> None:
        if summary.stopped:
            self._print(f"stopped: {summary.stopped}")
        result = summary.evaluation
        if result.episodes:
            text = f"evaluation: {result.mean:.1f} +/- {result.std:.1f} over {result.episodes} "
            text += "deterministic episodes"
            if result.unfinished:
                text += f", {result.unfinished} of them cut off by --eval_max_steps"
            self._print(text)
        if total := sum(self.seconds.values()):
            share = self.seconds["collecting"] / total
            limit = "the learner limits the speed"
            if share > 0.5:
                limit = "environments and acting limit the speed"
            self._print(f"time: {share:.0%} collecting, {1 - share:.0%} learning: {limit}")
        folder = os.path.relpath(self.run.path)
        files = ["summary.json"]
        if summary.steps:  # else nothing was trained
            pages = [page.name for page in sorted(self.run.path.glob("*.html"))]
            files = ["metrics.csv", *files, *pages]
        self._print(f"files: {', '.join(f'{folder}/{name}' for name in files)}")
        repeated = to_repeat(self.config, ("env_name", "wrapper", "model"))
        label = repeated.get("env_name", "")
        if label.startswith("<"):  # a class or function in Python
            options = "".join(f", {name}={x!r}" for name, x in repeated.items() if x != label)
            call = f"load_policy({folder!r}, {label.strip('<>')}{options}).evaluate(100)"
            self._print(f"next, in Python: {call}")
        else:
            self._print(f"next: {command_line('evaluate', folder, episodes=100, **repeated)}")

    def close(self) -> None:
        if not self.bar.disable:  # a disabled bar prints an empty line in some versions
            self.bar.stop()

    abort = close

    def _describe(self, metrics: Metrics) -> str:
        """Return the line of an iteration. metrics: those that have a value."""
        collecting = metrics["seconds_collecting"]
        share = collecting / (collecting + metrics["seconds_learning"])
        parts = [
            f"step {metrics['step']:,} of {self.total_steps:,}",
            f"{metrics['steps_per_second']:,.0f} steps/s",
        ]
        if "episode_return_mean" in metrics:
            parts.append(f"return {metrics['episode_return_mean']:.1f}")
        if "approx_kl" in metrics:
            parts.append(f"KL {metrics['approx_kl']:.2g}")
        for name in self.shown:
            value = metrics.get(name, metrics.get(f"env/{name}"))
            parts.append(f"{name} -" if value is None else f"{name} {value:.4g}")
        return ", ".join([*parts, f"{share:.0%} collecting"])

    def _print(self, text: str) -> None:
        with suppress(OSError):  # the output may go to a full disk
            self.console.print(text)
